#include "cli/memory_flags.h"

#include <charconv>
#include <cmath>

#include "cli/common.h"
#include "cli/memory.h"

namespace patina {

namespace {

constexpr double kShareOfFree = 0.8;

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"B", 1},
                           {"kB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"KiB", 1024.0},
                           {"MiB", 1024.0 * 1024.0},
                           {"GiB", 1024.0 * 1024.0 * 1024.0}};

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

void add_memory_options(CommandLine& line, MemoryFlags& flags) {
  line.option("--recompute", flags.recompute, "HOW",
              "Forward work that is done again in backward instead of keeping its results: off, layer (of every layer: "
              "the least memory, about a third more time), a number of segments of layers, or auto (as little as fits "
              "--memory). Changes no bit of the result.");
  line.option("--weights", flags.weights, "HOW",
              "mapped: the model's file stays in memory where there is room; stream: about two layers of it at a time, "
              "for models larger than memory; auto: mapped where that fits --memory. Changes no bit of the result.")
      ->check(quiet(CLI::IsMember({kAuto, kMapped, kStream})));
  line.add_option("--memory", flags.memory,
                  "What the run may take in all, such as 2GiB or 900MB; the default is 80 % of what is free. "
                  "Recompute, then micro-batches, then --weights are chosen to fit.")
      ->type_name("SIZE");
}

int parse_recompute(const std::string& text, int layers) {
  if (text == kAuto) return 0;
  if (text == "off") return 1;
  if (text == "layer") return layers;
  int segments = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), segments);
  if (error != std::errc() || end != text.data() + text.size() || segments < 1)
    fail(Error::Kind::kUsage, "--recompute {}: expected off, auto, layer or a number of segments, at least 1", text);
  return std::min(segments, layers);
}

int64_t memory_budget(const std::string& text) {
  if (text.empty()) return static_cast<int64_t>(kShareOfFree * static_cast<double>(free_bytes())) + anonymous_bytes();
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  std::string_view unit(end, static_cast<size_t>(last - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& row : kUnits)
    if (error == std::errc() && same_letters(unit, row.name) && std::isfinite(number) && number * row.bytes >= 1.0 &&
        number * row.bytes < 1e18)
      return static_cast<int64_t>(number * row.bytes);
  fail(Error::Kind::kUsage, "--memory {}: expected a size with its unit (kB, MB, GB, KiB, MiB, GiB), such as 2GiB",
       text);
}

std::string recompute_flag(int segments, int layers) {
  if (segments <= 1) return "off";
  return segments >= layers ? "layer" : std::to_string(segments);
}

std::string recompute_text(int segments, int layers) {
  return segments > 1 && segments < layers ? counted(segments, "segment") : recompute_flag(segments, layers);
}

}  // namespace patina
