#include "cli/run_saver.h"

#include "cli/console.h"

namespace patina {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kDirectory = "checkpoints";
constexpr double kEpochSeconds = 60.0;  // epochs of a small data set end every second

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

RunSaver::RunSaver(const fs::path& out, const RunFlags& flags, Json settings, std::function<Json()> session,
                   std::function<void(const std::string&)> warn)
    : path_(out / kDirectory),
      directory_(path_),
      rule_(parse_save_rule(flags.save_every)),
      keep_(flags.keep),
      settings_(std::move(settings)),
      session_(std::move(session)),
      warn_(std::move(warn)),
      last_(Clock::now()) {}

void RunSaver::after_step(Trainer& trainer, const ParameterStore& store, bool epoch_ended, EventWriter& events) {
  const TrainState& state = trainer.state();
  const bool due = (rule_.steps > 0 && state.steps % rule_.steps == 0) ||
                   (rule_.seconds > 0.0 &&
                    (seconds_since(last_) >= rule_.seconds || (epoch_ended && seconds_since(last_) >= kEpochSeconds)));
  if (due || state.best_step == state.steps) save(trainer, store, events);
}

bool RunSaver::save(Trainer& trainer, const ParameterStore& store, EventWriter& events) {
  const TrainState& state = trainer.state();
  if (saved_step_ == state.steps) return true;
  const Clock::time_point start = last_ = Clock::now();
  const fs::path path = directory_.file(state.steps);
  try {
    std::error_code error;
    fs::create_directory(path_, error);
    if (error)
      fail(Error::Kind::kIo, "{}: cannot be made: {}; check the permissions of --out", path_.string(), error.message());
    const int64_t bytes = write_checkpoint(path, store, trainer.optimizer(), {state, settings_, session_()});
    saved_step_ = state.steps;
    directory_.prune(keep_, state.best_step);
    events.write(
        "checkpoint",
        {{"step", state.steps}, {"path", path.string()}, {"bytes", bytes}, {"ms", 1e3 * seconds_since(start)}});
    return true;
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::kIo) throw;
    warn_(fmt::format("no checkpoint after step {}: {}{}", state.steps, error.what(),
                      saved_step_ > 0 ? fmt::format("; that of step {} stays the last", saved_step_) : ""));
    return false;
  }
}

void RunSaver::restore_best(const Trainer& trainer, ParameterStore& store) const {
  const TrainState& state = trainer.state();
  if (state.best_step == 0 || state.best_step == state.steps) return;
  try {
    Checkpoint(directory_.file(state.best_step)).restore_parameters(store);
    say("patina: the adapter is that of step {}, the best by validation\n", state.best_step);
  } catch (const Error& error) {
    warn_(fmt::format("{}; the adapter is that of the last step, not of the best", error.what()));
  }
}

std::optional<Checkpoint> find_checkpoint(const fs::path& out) {
  const CheckpointDirectory directory(out / kDirectory);
  directory.remove_unfinished();
  const std::vector<int64_t> steps = directory.steps();
  for (const int64_t step : steps) {
    try {
      return std::optional<Checkpoint>(std::in_place, directory.file(step));
    } catch (const Error& error) {
      say("patina: warning: {}; it is passed over\n", error.what());
    }
  }
  if (!steps.empty())
    fail(Error::Kind::kModel,
         "--resume: none of the checkpoints in {} can be read; give --overwrite to begin the run again",
         (out / kDirectory).string());
  return std::nullopt;
}

void remove_checkpoints(const fs::path& out) {
  const CheckpointDirectory directory(out / kDirectory);
  directory.remove_unfinished();
  directory.prune(0, 0);
}

}  // namespace patina
