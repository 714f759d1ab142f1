#include "cli/train_flags.h"

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/adapter_facts.h"
#include "cli/common.h"
#include "cli/formulation.h"

namespace patina {

namespace {

constexpr int64_t kMost = int64_t{1} << 30;
const std::map<std::string, Schedule> kSchedules = {
    {"cosine", Schedule::kCosine}, {"linear", Schedule::kLinear}, {"constant", Schedule::kConstant}};

}  // namespace

void add_target_options(CommandLine& line, TrainFlags& flags, const std::string& sites_help) {
  line.option("--out", flags.out, "DIR", "Directory for the adapter; required where one is trained.");
  add_adapter_options(line, flags.adapter_flags);
  flags.sites_option = line.option("--sites", flags.sites, "LIST", sites_help);
  flags.layers_option = line.option("--layers", flags.layers, "N", "Adapt only the last N layers; 0 adapts all.")
                            ->check(quiet(CLI::Range(int64_t{0}, int64_t{1} << 16)));
  line.add_option(
          "--init-adapter", flags.init_adapter,
          "Adapter to start from, instead of a fresh one; kind, ranks, alphas and sites are its own. A PEFT or MLX "
          "directory, a GGUF LoRA, or a LyCORIS or kohya .safetensors file.")
      ->type_name("PATH");
  CLI::Option* trigger =
      line.add_option(
              "--trigger", flags.trigger,
              "Word that calls the adapter up; kept in its metadata for programs that show it. The data are used "
              "as they are.")
          ->type_name("WORD");
  line.option("--trigger-position", flags.trigger_position, "WHERE",
              "Where a prompt should have the trigger: prepend, append or replace.")
      ->check(quiet(CLI::IsMember({"prepend", "append", "replace"})))
      ->needs(trigger);
}

void add_train_options(CommandLine& line, TrainFlags& flags) {
  TrainOptions& options = flags.options;
  add_memory_options(line, flags.memory);
  add_run_options(line, flags.run, options);
  CLI::Option* epochs = line.option("--epochs", options.epochs, "N", "Passes over the data set.")
                            ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.add_option("--steps", options.steps, "Optimizer steps, instead of --epochs.")
      ->type_name("N")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)))
      ->excludes(epochs);
  line.option("--lr", options.learning_rate, "NUMBER", "Highest learning rate.")->check(above_zero());
  line.option("--schedule", flags.schedule, "NAME",
              "How the learning rate falls after the warm-up: cosine or linear to a tenth, or constant.")
      ->check(quiet(CLI::IsMember(kSchedules)));
  line.option("--warmup", options.warmup, "NUMBER", "Warm-up: below 1 a fraction of all steps, else steps.")
      ->check(not_negative());
  line.option("--warmup-min", options.least_warmup_steps, "STEPS",
              "Least warm-up that a fraction stands for, but never more than half of all steps; 0: no such rule.")
      ->check(quiet(CLI::Range(int64_t{0}, kMost)));
  line.option("--weight-decay", options.optimizer.weight_decay, "NUMBER", "Decoupled weight decay.")
      ->check(not_negative());
  line.option("--grad-clip", options.grad_clip, "NUMBER", "Largest norm of the whole gradient; 0 does not clip.")
      ->check(not_negative());
  line.option("--seed", options.seed, "N",
              "Of the first values and of the order of samples; the same seed gives the same adapter, to the bit.")
      ->check(seed_number());
  flags.bwd_option = add_formulation_option(line, flags.bwd);
  add_threads_option(line, flags.threads);
  line.add_flag("--profile", flags.profile, "Print after the run where the time of its steps went, op by op.");
  line.add_flag("--jsonl", flags.jsonl, "Print events on stdout, one JSON object a line.");
  line.add_flag("--overwrite", flags.overwrite, "Replace the files of an earlier run in --out.")->excludes("--resume");
}

void resolve_train_flags(TrainFlags& flags) {
  TrainOptions& options = flags.options;
  if (flags.init_adapter.empty()) flags.adapter = adapter_options(flags.adapter_flags, options.seed);
  options.schedule = kSchedules.at(flags.schedule);
  resolve_run_flags(flags.run, options);
  parse_recompute(flags.memory.recompute, 1);
  memory_budget(flags.memory.memory);
  options.stream_weights = flags.memory.weights == kStream;
  const FormulationChoice bwd = choose_formulation(flags.bwd, flags.bwd_option->count() > 0);
  options.gradients.formulation = bwd.formulation;
  flags.bwd = name(bwd.formulation);
  flags.bwd_inherited = bwd.inherited;
  try {
    static_cast<void>(nlohmann::json(flags.trigger).dump());
  } catch (const nlohmann::json::exception&) {
    fail(Error::Kind::kUsage, "--trigger: is not valid UTF-8; give it as UTF-8 text");
  }
}

void take_over(const AdapterFile& initial, int layers, const std::set<std::string>& asked, TrainFlags& flags) {
  flags.adapter = take_over(initial.sites, flags.init_adapter, flags.adapter_flags);
  const AdapterFacts facts = adapter_facts(initial.sites);
  const auto check = [&](const CLI::Option* option, bool agrees, const auto& found) {
    if (option->count() > 0 && !agrees)
      fail(Error::Kind::kUsage, "{} {} contradicts --init-adapter {}, which has {} {}; leave {} out",
           option->get_name(), option->results().front(), flags.init_adapter, option->get_name().substr(2),
           fmt::join(found, ", "), option->get_name());
  };
  const int first = layers - static_cast<int>(facts.layers.size());
  const bool top = facts.layers.empty() || *facts.layers.begin() == first;
  check(flags.sites_option, asked == std::set(facts.sites.begin(), facts.sites.end()), facts.sites);
  check(flags.layers_option, top && (flags.layers > 0 ? flags.layers : layers) == std::ssize(facts.layers),
        facts.layers);
  flags.layers = first == 0 ? 0 : std::ssize(facts.layers);
}

}  // namespace patina
