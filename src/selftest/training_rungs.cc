// Rungs on the training of any model: gradients, batches, recompute, the trainer.
#include <unistd.h>

#include <fstream>

#ifdef __GLIBC__  // which a header before tells
#include <malloc.h>
#endif

#include "selftest/measures.h"
#include "selftest/tables.h"
#include "selftest/trial.h"

namespace patina {

namespace {

using Measured = std::vector<double>;

const Items kAll = {0, 1, 2, 3};
const Items kFew = {0, 2};  // the short ones, for oracles that take their time

TrainableOptions trained(const RungContext& context, int segments = 1) {
  return {GradientOptions{context.formulation, segments}};
}

constexpr int kManySegments = 1 << 10;  // as many as there are layers

// --- T4, LK4: gradients against double precision ---

Measured gradients_of(RungContext& context, std::initializer_list<const TriedAdapter*> adapters) {
  const std::vector<Site> sites = context.model().sites();
  Measured measured = {0, 0};
  for (const TriedAdapter* const tried : adapters) {
    const auto adapter = disturbed_adapter(context, sites, *tried);
    const ExactGradients& oracle =
        context.remembered(std::string(tried->name), [&] { return exact_gradients(context, *adapter, kFew); });
    const LossAndGradient got = Trial(context, adapter.get(), trained(context)).run(kFew);
    measured[0] = larger(measured[0], worst_parameter(adapter->parameters(), got.gradient, oracle.exact.gradient));
    for (const ExactGradients::Direction& direction : oracle.directions) {
      double along = 0;
      for (size_t i = 0; i < got.gradient.size(); ++i) along += got.gradient[i] * direction.along[i];
      measured[1] = larger(measured[1], std::abs(along - direction.derivative));
    }
  }
  return measured;
}
Measured measure_gradients(RungContext& context) { return gradients_of(context, {&lora(), &dora()}); }
Measured measure_lokr_gradients(RungContext& context) { return gradients_of(context, {&lokr(), &lokr_both()}); }

// --- T5, LM7: the trainer ---

double course(RungContext& context, bool learnable) {
  const auto adapter = fresh_adapter(context, layer_sites(context.model()), lora());
  constexpr int64_t kSteps = 60;
  const std::vector<double> losses =
      context.model().train(*adapter, {kSteps, 5e-3, {context.formulation, 1}, learnable}, *context.parts.backend,
                            context.pool, [](int64_t) {});
  constexpr int64_t kLast = 5;  // of losses that jump, where no items come twice
  double last = 0;
  for (int64_t i = kSteps - kLast; i < kSteps; ++i) last += losses.at(static_cast<size_t>(i)) / double{kLast};
  return last / losses.at(0);
}
Measured measure_overfitting(RungContext& context) { return {course(context, true), course(context, false)}; }

// Of the process, without the pages of mapped files and those of memory that was given back: a loss could hide there.
double resident_mib() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  double size = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  return (resident - shared) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

Measured measure_memory_growth(RungContext& context) {
  constexpr int64_t kSteps = 200, kWarm = 20;
  const auto adapter = fresh_adapter(context, layer_sites(context.model()), lokr());
  double before = 0, after = 0;
  context.model().train(*adapter, {kSteps, 1e-4, {context.formulation, kManySegments}}, *context.parts.backend,
                        context.pool, [&](int64_t step) {
                          if (step == kWarm) before = resident_mib();
                          if (step == kSteps) after = resident_mib();
                        });
  return {std::max(0.0, after - before)};
}

// --- SB: batches ---

Measured measure_batch_forward(RungContext& context) {
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, context.model().sites(), *tried);
    Trial trial(context, adapter.get(), {});
    double sum = 0;
    for (const size_t item : kAll) sum += trial.run({item}).loss;
    measured[0] = larger(measured[0], relative_error(trial.run(kAll).loss, sum));
  }
  return measured;
}

Measured measure_batch_backward(RungContext& context) {
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, context.model().sites(), *tried);
    Trial trial(context, adapter.get(), trained(context));
    std::vector<double> sum(adapter->parameters().values().size());
    for (const size_t item : kAll) {
      const std::vector<double> one = trial.run({item}).gradient;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    measured[0] = larger(measured[0], worst_parameter(adapter->parameters(), trial.run(kAll).gradient, sum));
  }
  return measured;
}

Measured padding(RungContext& context, int segments) {
  Measured measured = {0, 0};
  for (const TriedAdapter* const tried : {&lora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, layer_sites(context.model()), *tried);
    Trial trial(context, adapter.get(), trained(context, segments));
    const LossAndGradient plain = trial.run(kAll), padded = trial.run(kAll, TrainableModel::kMostPadding);
    measured[0] = larger(measured[0], std::abs(padded.loss - plain.loss));
    for (size_t i = 0; i < plain.gradient.size(); ++i)
      measured[1] = larger(measured[1], std::abs(padded.gradient[i] - plain.gradient[i]));
  }
  return measured;
}
Measured measure_padding(RungContext& context) { return padding(context, 1); }
Measured measure_padding_recomputed(RungContext& context) { return padding(context, kManySegments); }

// --- SC: recompute ---

// Numbers that nothing was repeated for would prove nothing.
double required_repeats(const Trial& trial) { return trial.graph().repeated_nodes() > 0 ? 0 : NAN; }

Measured measure_recompute(RungContext& context) {
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, layer_sites(context.model()), *tried);
    Trial plain(context, adapter.get(), trained(context)),
        again(context, adapter.get(), trained(context, kManySegments));
    const LossAndGradient expected = plain.run(kAll), got = again.run(kAll);
    measured[0] = larger(measured[0], larger(relative_error(got.loss, expected.loss), required_repeats(again)));
    measured[0] = larger(measured[0], worst_parameter(adapter->parameters(), got.gradient, expected.gradient));
  }
  return measured;
}

Measured measure_lokr_in_parts(RungContext& context) {
  const auto adapter = disturbed_adapter(context, layer_sites(context.model()), lokr());
  const auto options = [&](int segments) {
    TrainableOptions made = trained(context, segments);
    made.guard_site = true;
    return made;
  };
  // One batch without recompute, by the product that has no guard.
  TrainableOptions whole = options(1);
  whole.gradients->formulation = Formulation::kFused;
  const LossAndGradient expected = Trial(context, adapter.get(), whole).run(kAll);
  Trial trial(context, adapter.get(), options(kManySegments));
  const LossAndGradient got = trial.run(std::vector<Items>{{2, 1}, {3}, {0}});
  const double error = larger(relative_error(got.loss, expected.loss),
                              worst_parameter(adapter->parameters(), got.gradient, expected.gradient));
  const FormulationCounts& counts = trial.graph().differentiation().formulations;
  return {larger(error, required_repeats(trial)), static_cast<double>(counts.strided_gradients)};
}

}  // namespace

Rungs training_rungs() {
  constexpr auto kEach = Repeats::kByFormulation;
  static const std::vector<Rung> rungs = {
      {"T4",
       "LoRA and DoRA gradients of every site = double precision = exact derivatives",
       kEach,
       {at_most(1e-4, "of a parameter"), at_most(1e-4, "along directions")},
       measure_gradients},
      {"T5",
       "training learns what can be learnt, and not what cannot: last loss / first",
       kEach,
       {at_most(0.15, "learnable"), at_least(0.5, "not")},
       measure_overfitting},
      {"LK4",
       "T4 of LoKr's w1, w2, and of the products that stand for them",
       kEach,
       {at_most(1e-4, "of a parameter"), at_most(1e-4, "along directions")},
       measure_lokr_gradients},
      {"SB1", "loss of a batch = sum of its items' losses", Repeats::kByType, {at_most(1e-6)}, measure_batch_forward},
      {"SB2", "gradient of a batch = sum of its items' gradients", kEach, {at_most(1e-5)}, measure_batch_backward},
      {"SB3",
       "padding moves loss and gradient by nothing",
       kEach,
       {exactly_zero("loss"), exactly_zero("gradient")},
       measure_padding},
      {"SC1", "recomputed gradient = plain", kEach, {at_most(1e-6)}, measure_recompute},
      {"SC2",
       "SB3 under recompute",
       kEach,
       {exactly_zero("loss"), exactly_zero("gradient")},
       measure_padding_recomputed},
      {"SC3",
       "LoKr in micro-batches under recompute = whole; mm gives way where dy has gaps",
       kEach,
       {at_most(1e-5), {Bar::Side::kAtLeast, 1, "products kept from mm", true}},
       measure_lokr_in_parts},
      {"LM7", "memory that 180 steps of training grow by, MiB", kEach, {at_most(1.0)}, measure_memory_growth},
  };
  return rungs;
}

}  // namespace patina
