#include "cli/train_fit.h"

#include "cli/common.h"
#include "cli/console.h"
#include "cli/memory.h"

namespace patina {

namespace {

// The setting with which the run fits into its memory beside `fixed_bytes`.
MemoryFit find_fit(const FitSubject& subject, const TrainFlags& flags, int64_t budget_bytes, int64_t fixed_bytes) {
  TrainOptions options = flags.options;
  const int asked = parse_recompute(flags.memory.recompute, subject.layers);
  const FitChoices choices{asked == 0, subject.micro_auto, flags.memory.weights == kAuto};
  options.gradients.segments = std::max(asked, 1);
  const MemoryFit fit = subject.plan(options, choices, budget_bytes - fixed_bytes);
  if (!fit.fits)
    fail(Error::Kind::kMemory,
         "the run takes at least {} (with --recompute {} and {} {}), and {} is {}; lower {}{}, or raise --memory",
         bytes_text(fixed_bytes + fit.weights_bytes + fit.arena_bytes), recompute_flag(fit.segments, subject.layers),
         subject.micro_flag, fit.micro, bytes_text(budget_bytes),
         flags.memory.memory.empty() ? "80 % of what is free" : "all that --memory allows", subject.largest_flag,
         choices.segments && choices.micro && choices.weights
             ? ""
             : fmt::format(" or leave --recompute, {} and --weights at auto", subject.micro_flag));
  return fit;
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

Fitted fit(const FitSubject& subject, TrainFlags& flags, int64_t budget_bytes, int64_t fixed_bytes) {
  TrainOptions options = flags.options;
  Fitted fitted{};
  // What a trainer takes beside its plan is known once it is there. Where that is too much, the next one leaves room.
  for (int64_t over_bytes = 0, planned_bytes = INT64_MAX; planned_bytes > budget_bytes;) {
    fitted.trainer.reset();
    const MemoryFit found = find_fit(subject, flags, budget_bytes, fixed_bytes + subject.later_bytes + over_bytes);
    options.gradients.segments = found.segments;
    options.stream_weights = found.stream_weights;
    fitted = {subject.make(options, found.micro), found.micro};
    const TrainPlan& plan = fitted.trainer->plan();
    planned_bytes = plan.weights_bytes + plan.arena_bytes + plan.optimizer_scratch_bytes + anonymous_bytes() +
                    subject.later_bytes + (options.stream_weights ? subject.later_window_bytes : 0) +
                    (flags.run.milestone_step > 0.0 ? plan.trainable_bytes / 2 : 0);
    over_bytes += planned_bytes - budget_bytes;
  }
  const char* const weights = options.stream_weights ? kStream : kMapped;
  if (options.gradients.segments > std::max(1, parse_recompute(flags.memory.recompute, subject.layers)) ||
      fitted.micro != subject.micro || (options.stream_weights && flags.memory.weights == kAuto))
    say("patina: to fit into {}: --recompute {} {} {} --weights {}\n", bytes_text(budget_bytes),
        recompute_flag(options.gradients.segments, subject.layers), subject.micro_flag, fitted.micro, weights);
  flags.options = options;
  flags.memory.weights = weights;
  return fitted;
}

}  // namespace patina
