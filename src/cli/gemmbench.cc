// patina gemmbench: the speed and the precision of the frozen product on this machine, beside OpenBLAS's sgemm.
#include <charconv>

#include "backend/cpu/cpu_backend.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/console.h"
#include "cli/gemmbench_report.h"
#include "cli/lists.h"
#include "measure/machine.h"

namespace patina {

namespace {

constexpr int64_t kMostTokens = 1 << 16;

int64_t read_tokens(const char* flag, std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 1 || value > kMostTokens)
    fail(Error::Kind::kUsage, "{}: expected whole numbers from 1 to {} with commas between them, found \"{}\"", flag,
         kMostTokens, word);
  return value;
}

constexpr const char* kFooter =
    "Each product runs as in training: a graph of one node through the executor. ratio is its speed in units of "
    "OpenBLAS's "
    "sgemm on an F32 copy of the weight, same sizes, same threads, in the same rounds. Precision is checked for 8 rows "
    "of "
    "every result, all their columns, against double precision; a result that F32 arithmetic does not explain ends the "
    "command with status 1. See docs/gemmbench.md.";

}  // namespace

int run_gemmbench(const Command& command, int argc, char** argv) {
  GemmBenchOptions options;
  std::string shape = "qwen3-4b", tokens = "512,2048,2944", types = "F32,BF16,Q8_0,Q4_K",
              formulations = "fused,mm,outprod", emulate, json_path;
  bool quick = false;
  CommandLine line(command);
  line.footer(kFooter);
  line.option("--model-shape", shape, "NAME",
              "Products of a layer of " + model_shape_names() + "; or one product as KxN, such as 2560x4096.");
  const CLI::Option* tokens_option = line.option("--seq", tokens, "LIST", "Tokens T of a product, with commas.");
  const CLI::Option* types_option = line.option("--types", types, "LIST", "Types of the weight, with commas.");
  line.option("--formulations", formulations, "LIST", "How the backward product is computed, with commas.");
  add_threads_option(line, options.threads);
  const CLI::Option* reps_option =
      line.option("--reps", options.reps, "N", "Rounds whose median is taken; outprod: as many as 2 s allow.")
          ->check(quiet(CLI::Range(1, 1000)));
  line.add_flag("--quick", quick,
                "Under 45 s for each known shape: --seq 256 --types BF16,Q4_K --reps 3, where not given.");
  line.add_flag("--step", options.step,
                "A whole layer, forward and backward, in one graph instead of its products one by one.");
  line.option("--emulate", emulate, "WHAT", "ggml-cuda: also the precision of its arithmetic, emulated.")
      ->check(quiet(CLI::IsMember({"ggml-cuda"})));
  const CLI::Option* json_option = line.option("--json", json_path, "FILE", "Write all measurements to a file, too.");
  line.option("--min-ratio", options.min_ratio, "NUMBER",
              "Status 1 where a layer's sum of fused, forward or backward, is below this many times sgemm.")
      ->check(above_zero())
      ->default_str("");
  if (!line.read(argc, argv)) return 0;
  if (quick) {
    if (tokens_option->count() == 0) tokens = "256";
    if (types_option->count() == 0) types = "BF16,Q4_K";
    if (reps_option->count() == 0) options.reps = 3;
  }
  options.shape = model_shape(shape);
  options.tokens = read_list<int64_t>("--seq", tokens, read_tokens);
  options.types = read_types("--types", types);
  options.formulations = read_formulations("--formulations", formulations);
  options.emulate = !emulate.empty();
  if (json_option->count() > 0 && json_path.empty())
    fail(Error::Kind::kUsage, "--json: expected a file name, got nothing");
  if (!json_path.empty()) const AtomicFile probe(json_path);  // not to find out at the end that it cannot be written
  check_options(options);

  const BenchmarkLock lock([](const char* path) {
    say("patina: another benchmark runs on this machine; waiting for it to end ({})\n", path);
  });
  const GemmBenchResult result =
      run_gemmbench(options, cpu_backend(), [&](const GemmBenchResult& so_far, size_t first) {
        if (first > 0 || !so_far.measurements.empty()) return write_out(gemmbench_block(so_far, first));
        if (so_far.machine.busy())
          say("patina: warning: other processes keep {:.1f} cores busy; ratios will be off\n",
              so_far.machine.other_cores_before);
        write_out(gemmbench_head(options, so_far.machine));
      });
  write_out(gemmbench_tail(result));
  if (result.machine.other_cores > kBusyCores)
    say("patina: warning: other processes kept {:.1f} cores busy during the run; measure again on a quiet machine\n",
        result.machine.other_cores);
  if (!json_path.empty()) write_file(json_path, gemmbench_json(options, result));
  const std::vector<std::string> faults = gemmbench_faults(result, options.min_ratio);
  for (const std::string& fault : faults) say("patina: {}\n", fault);
  return faults.empty() ? 0 : 1;
}

}  // namespace patina
