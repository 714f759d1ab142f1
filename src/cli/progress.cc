#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/common.h"
#include "cli/console.h"
#include "cli/memory.h"

namespace patina {

namespace {

constexpr double kSecondsBetweenLines = 5.0;
constexpr int64_t kWidestBar = 30, kNarrowestBar = 8;
constexpr int64_t kStepsOfMean = 20;  // the loss that is shown: that of one step jumps too much to show a trend

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org
  return no_colour == nullptr || *no_colour == '\0';
}

int64_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Progress::Progress()
    : terminal_(isatty(STDERR_FILENO) == 1),
      colour_(wants_colour()),
      start_(std::chrono::steady_clock::now()),
      last_line_(start_) {}

Progress::~Progress() { clear_bar(); }

void Progress::on_step(const StepReport& step) {
  const auto now = std::chrono::steady_clock::now();
  tokens_ += step.tokens;
  for (const Figure& figure : step.figures)
    if (figure.name == std::string_view(kAudioSeconds)) audio_seconds_ += figure.value;
  ++steps_;
  const double elapsed = seconds(now - start_), before = mean_loss_;
  const double left = elapsed / static_cast<double>(steps_) * static_cast<double>(step.total_steps - step.step);
  mean_loss_ += (step.loss - mean_loss_) / static_cast<double>(std::min(steps_, kStepsOfMean));
  const std::string_view trend = steps_ < 2 ? "" : mean_loss_ < before ? " falling" : " rising";
  const double rate = (audio_seconds_ > 0.0 ? audio_seconds_ : static_cast<double>(tokens_)) / std::max(elapsed, 1e-9);
  const std::string speed = audio_seconds_ > 0.0 ? fmt::format("{:.2f} audio s/s ({:.1f} h to {} s)", rate,
                                                               static_cast<double>(kGoodAudioSeconds) / rate / 3600.0,
                                                               grouped(kGoodAudioSeconds))
                                                 : fmt::format("{:.0f} tokens/s", rate);
  const std::string figures =
      fmt::format("step {}/{}  loss {:.4f}{}  lr {:.2e}  {}  left {}  resident {}", step.step, step.total_steps,
                  mean_loss_, trend, step.learning_rate, speed, duration_text(left), bytes_text(resident_bytes()));
  if (terminal_) {
    draw_bar(step, figures);
  } else if (step.step == 1 || seconds(now - last_line_) >= kSecondsBetweenLines) {
    print_line(figures);
    last_line_ = now;
  }
}

void Progress::on_epoch(const EpochReport& epoch) {
  print_line(fmt::format("epoch {}/{}  mean loss {:.4f}{}  {}", epoch.epoch, epoch.epochs, epoch.loss,
                         epoch.best ? " (best)" : "", duration_text(epoch.ms / 1e3)));
}

void Progress::print_line(const std::string& text) {
  clear_bar();
  say("{}\n", text);
}

void Progress::draw_bar(const StepReport& step, const std::string& figures) {
  const int64_t columns = terminal_columns() - 1;  // the last column would wrap on some terminals
  const int64_t room = std::min(kWidestBar, columns - static_cast<int64_t>(figures.size()) - 3);
  std::string line;
  if (room >= kNarrowestBar) {
    const int64_t filled = room * step.step / step.total_steps;
    const std::string done(static_cast<size_t>(filled), '='), left(static_cast<size_t>(room - filled), ' ');
    line = fmt::format("[{}{}{}{}] ", colour_ ? "\x1b[32m" : "", done, colour_ ? "\x1b[0m" : "", left);
  }
  line += figures.substr(0, static_cast<size_t>(std::max<int64_t>(columns, 0)));
  say("\r\x1b[K{}", line);
  bar_shown_ = true;
}

void Progress::clear_bar() {
  if (bar_shown_) say("\r\x1b[K");
  bar_shown_ = false;
}

}  // namespace patina
