#include "cli/train_fit.h"

#include "backend/cpu/cpu_backend.h"
#include "cli/console.h"
#include "cli/memory.h"

namespace patina {

namespace {

// The options with which the run fits into its memory beside `fixed_bytes`.
TrainOptions fitting_options(const LanguageModel& model, Adapter& adapter, const Dataset& data, const TrainFlags& flags,
                             int64_t budget_bytes, int64_t fixed_bytes) {
  TrainOptions options = flags.options;
  const int layers = model.weights.config().layers, asked = parse_recompute(flags.memory.recompute, layers);
  const FitChoices choices{asked == 0, options.micro_tokens == 0, flags.memory.weights == kAuto};
  options.gradients.segments = std::max(asked, 1);
  const MemoryFit fit = fit_memory(model.weights, adapter, data.sequences, options, choices, budget_bytes - fixed_bytes,
                                   cpu_backend(), flags.threads);
  const std::string recompute = recompute_flag(fit.segments, layers);
  if (!fit.fits)
    fail(Error::Kind::kMemory,
         "the run takes at least {} (with --recompute {} and --micro-tokens {}), and {} is {}; lower --context{}, or "
         "raise --memory",
         bytes_text(fixed_bytes + fit.weights_bytes + fit.arena_bytes), recompute, fit.micro_tokens,
         bytes_text(budget_bytes), flags.memory.memory.empty() ? "80 % of what is free" : "all that --memory allows",
         choices.segments && choices.micro_tokens && choices.weights
             ? ""
             : " or leave --recompute, --micro-tokens and --weights at auto");
  options.gradients.segments = fit.segments;
  options.stream_weights = fit.stream_weights;
  if (fit.micro_tokens != resolve_micro_tokens(options, data.sequences)) options.micro_tokens = fit.micro_tokens;
  return options;
}

}  // namespace

void check_trainables(std::span<const Site> sites, const AdapterOptions& options) {
  constexpr int64_t kBytes = 16;  // value, gradient and two moments, F32
  const int64_t parameters = count_parameters(sites, options);
  const std::string_view flag = options.kind == AdapterKind::kLokr ? "--lokr-dim" : "--rank";
  if (parameters > machine_bytes() / kBytes)
    fail(Error::Kind::kMemory,
         "{} {}: the {} trainable parameters take {} ({} bytes each), this machine has {}; lower it or adapt fewer "
         "layers",
         flag, options.rank, grouped(parameters), bytes_text(parameters * kBytes), kBytes, bytes_text(machine_bytes()));
}

std::unique_ptr<Trainer> fit(const LanguageModel& model, Adapter& adapter, const Dataset& data,
                             const Validation& validation, TrainFlags& flags, int64_t budget_bytes, int64_t fixed_bytes,
                             ThreadPool& pool) {
  TrainOptions options;
  std::unique_ptr<Trainer> trainer;
  // What a trainer takes beside its plan is known once it is there. Where that is too much, the next one leaves room.
  for (int64_t over_bytes = 0, planned_bytes = INT64_MAX; planned_bytes > budget_bytes;) {
    trainer.reset();
    options = fitting_options(model, adapter, data, flags, budget_bytes, fixed_bytes + over_bytes);
    trainer = std::make_unique<Trainer>(model.weights, adapter, data.sequences, validation.sequences, options,
                                        cpu_backend(), pool);
    const TrainPlan& plan = trainer->plan();
    planned_bytes = plan.weights_bytes + plan.arena_bytes + anonymous_bytes();
    over_bytes += planned_bytes - budget_bytes;
  }
  const int layers = model.weights.config().layers;
  const char* const weights = options.stream_weights ? kStream : kMapped;
  if (options.gradients.segments > std::max(1, parse_recompute(flags.memory.recompute, layers)) ||
      options.micro_tokens != flags.options.micro_tokens || (options.stream_weights && flags.memory.weights == kAuto))
    say("patina: to fit into {}: --recompute {} --micro-tokens {} --weights {}\n", bytes_text(budget_bytes),
        recompute_flag(options.gradients.segments, layers), trainer->plan().micro_tokens, weights);
  flags.options = options;
  flags.memory.weights = weights;
  return trainer;
}

}  // namespace patina
