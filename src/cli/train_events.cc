#include "cli/train_events.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "cli/common.h"
#include "cli/memory.h"

namespace patina {

namespace {

Json bwd_fields(const TrainRun& run) {
  const FormulationCounts& counts = run.formulations;
  Json fields = {{"requested", run.flags.bwd}, {"inherited", run.flags.bwd_inherited}};
  for (const FormulationName& row : kFormulations) fields[row.name] = counts[row.formulation];
  fields["stridedGradients"] = counts.strided_gradients;
  fields["quantisedWeights"] = counts.quantised_weights;
  return fields;
}

std::vector<std::string> site_names(const std::vector<Site>& sites) {
  std::vector<std::string> names;
  for (const Site& site : sites)
    if (std::find(names.begin(), names.end(), site.name) == names.end()) names.push_back(site.name);
  return names;
}

}  // namespace

std::vector<MemoryKind> memory_kinds(const TrainRun& run) {
  const TrainPlan& plan = run.plan;
  const int64_t data = run.data_bytes;
  std::vector<MemoryKind> kinds = {
      {"weights", plan.weights_bytes,
       run.flags.options.stream_weights ? "of the mapped file at one time; read ahead and released after use"
                                        : "mapped file; the system takes pages back where memory is short"},
      {"trainables", plan.trainable_bytes, "the adapter's values and their gradients"},
      {"moments", plan.moments_bytes, "of the optimizer"},
      {"saved", plan.saved_bytes, "activations that backward reads"},
      {"scratch", plan.arena_bytes - plan.saved_bytes + plan.optimizer_scratch_bytes,
       "other activations, and room for kernels and optimizer to work in"},
      {"data", data, "the data set"},
      {"process", std::max<int64_t>(0, run.anonymous_bytes - plan.trainable_bytes - plan.moments_bytes - data),
       "the program: tokenizer, graph, tables, thread stacks"}};
  if (run.flags.run.milestone_step > 0.0)
    kinds.push_back({"milestones", plan.trainable_bytes / 2, "while one is written: a copy of the adapter's values"});
  if (run.sample_bytes > 0)
    kinds.push_back({"samples", run.sample_bytes, "while samples are taken: cache and activations"});
  return kinds;
}

int64_t planned_bytes(const TrainRun& run) {
  int64_t sum = 0;
  for (const MemoryKind& kind : memory_kinds(run)) sum += kind.bytes;
  return sum;
}

Json start_event(const TrainRun& run) {
  const TrainFlags& flags = run.flags;
  const TrainOptions& options = flags.options;
  Json event = {{"version", PATINA_VERSION},
                {"command", (flags.plan_only ? "plan " : "") + flags.command},
                {"model", flags.model},
                {"modelFingerprint", run.model_fingerprint},
                {"adapterType", flags.adapter_flags.type},
                {"sites", site_names(run.sites)},
                {"layers", flags.layers},
                {"rank", flags.adapter.rank},
                {"alpha", flags.adapter.alpha},
                {"rslora", flags.adapter_flags.rslora},
                {"rankPattern", flags.adapter_flags.rank_pattern},
                {"alphaPattern", flags.adapter_flags.alpha_pattern},
                {"dropout", flags.adapter_flags.dropout}};
  if (flags.adapter.kind == AdapterKind::kLokr)
    event["lokr"] = {{"dim", flags.adapter.rank},
                     {"alpha", flags.adapter.alpha},
                     {"factor", flags.adapter.factor},
                     {"decomposeBoth", flags.adapter.decompose_both}};
  event.update({{"trainable", run.parameters},
                {"optimizer", flags.run.optimizer},
                {"lr", options.learning_rate},
                {"schedule", flags.schedule},
                {"warmup", options.warmup},
                {"weightDecay", options.optimizer.weight_decay},
                {"gradClip", options.grad_clip}});
  if (options.steps > 0)
    event["steps"] = options.steps;
  else
    event["epochs"] = options.epochs;
  event.update({{"recompute", recompute_text(options.gradients.segments, run.layers)},
                {"weights", flags.memory.weights},
                {"seed", options.seed},
                {"threads", flags.threads},
                {"isa", cpu_isa()},
                {"bwd", bwd_fields(run)},
                {"out", flags.out}});
  return event;
}

Json memory_event(const TrainRun& run) {
  Json event = Json::object();
  for (const MemoryKind& kind : memory_kinds(run)) event[kind.name] = kind.bytes;
  event["planned"] = planned_bytes(run);
  event["budget"] = run.budget_bytes;
  return event;
}

Json plan_event(const TrainRun& run, const TimeEstimate& time) {
  return {{"totalSteps", run.plan.total_steps},
          {"stepOperations", time.step_operations},
          {"gflops", time.gflops},
          {"stepMs", time.step_ms},
          {"totalMs", time.total_ms}};
}

Json step_event(const StepReport& step) {
  Json event = {{"epoch", step.epoch},
                {"step", step.step},
                {"totalSteps", step.total_steps},
                {"loss", step.loss},
                {"lr", step.learning_rate},
                {"gradNorm", step.grad_norm},
                {"clipScale", step.clip_scale},
                {"tokens", step.tokens},
                {"supervised", step.supervised},
                {"ms", step.ms},
                {"tokensPerSecond", step.tokens_per_second},
                {"residentBytes", resident_bytes()},
                {"anonymousBytes", anonymous_bytes()}};
  for (const Figure& figure : step.figures) event[figure.name] = figure.value;
  return event;
}

Json epoch_event(const EpochReport& epoch) {
  return {{"epoch", epoch.epoch},
          {"epochs", epoch.epochs},
          {"loss", epoch.loss},
          {"ma5", epoch.mean_of_last_five},
          {"lr", epoch.learning_rate},
          {"gradNorm", epoch.grad_norm},
          {"ms", epoch.ms},
          {"etaMs", epoch.eta_ms},
          {"best", epoch.best}};
}

Json eval_event(const EvalReport& eval) {
  Json event = {
      {"step", eval.step}, {"loss", eval.loss}, {"tokens", eval.tokens}, {"best", eval.best}, {"ms", eval.ms}};
  for (const Figure& figure : eval.figures) event[figure.name] = figure.value;
  return event;
}

std::string_view reason_name(TrainResult::Reason reason) {
  switch (reason) {
    case TrainResult::Reason::kCompleted:
      return "completed";
    case TrainResult::Reason::kTarget:
      return "target";
    case TrainResult::Reason::kPatience:
      return "patience";
    case TrainResult::Reason::kInterrupted:
      return "interrupted";
  }
  PATINA_CHECK(false, "reason {}", static_cast<int>(reason));
}

std::string_view kind_name(Error::Kind kind) {
  switch (kind) {
    case Error::Kind::kUsage:
      return "usage";
    case Error::Kind::kModel:
      return "model";
    case Error::Kind::kData:
      return "data";
    case Error::Kind::kMemory:
      return "memory";
    case Error::Kind::kNonFinite:
      return "nonfinite";
    case Error::Kind::kIo:
      return "io";
  }
  PATINA_CHECK(false, "kind {}", static_cast<int>(kind));
}

std::string adapter_words(const TrainRun& run) {
  return fmt::format("{}, sites {}, {}: {}", describe(run.flags.adapter_flags, run.flags.adapter),
                     fmt::join(site_names(run.sites), ", "),
                     counted(run.flags.layers > 0 ? run.flags.layers : run.layers, "layer"),
                     counted(run.parameters, "trainable parameter"));
}

std::string describe_adapter(const TrainRun& run) { return "adapter   " + adapter_words(run) + "\n"; }

std::string describe_costs(const TrainRun& run) {
  std::string text = fmt::format("memory    {} planned", bytes_text(planned_bytes(run)));
  const char* before = ": ";
  for (const MemoryKind& kind : memory_kinds(run)) {
    text += fmt::format("{}{} {}", before, kind.name, bytes_text(kind.bytes));
    before = ", ";
  }
  text += "\n";
  std::string ways;
  for (const FormulationName& row : kFormulations)
    if (const int64_t nodes = run.formulations[row.formulation]; nodes > 0)
      ways += fmt::format("{}{} by {}", ways.empty() ? "" : ", ", grouped(nodes), row.name);
  text +=
      fmt::format("backward  {}\n", ways.empty() ? "through no frozen product" : "through frozen products: " + ways);
  text += fmt::format("machine   {}, {}, {} of memory\n", counted(run.flags.threads, "thread"), cpu_isa(),
                      bytes_text(machine_bytes()));
  return text;
}

std::string describe_memory(const TrainRun& run) {
  std::string text;
  for (const MemoryKind& kind : memory_kinds(run))
    text +=
        fmt::format("{:<12}{:>18}  {:>10}  {}\n", kind.name, grouped(kind.bytes), bytes_text(kind.bytes), kind.what);
  const int64_t sum = planned_bytes(run);
  return text + fmt::format("{:<12}{:>18}  {:>10}  of {} that the run may take\n", "sum", grouped(sum), bytes_text(sum),
                            bytes_text(run.budget_bytes));
}

}  // namespace patina
