// What a run trains on: samples, how they fill the steps of an epoch, and the loss of a step with its gradient. The
// training loop (train/trainer.h) knows nothing else about them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/profile.h"
#include "ir/formulation.h"
#include "ir/graph.h"

namespace patina {

// A number beside the loss, for events: its name there and its value.
struct Figure {
  const char* name;
  double value;
};

// The figure of steps that are audio: how much of it.
inline constexpr const char* kAudioSeconds = "audioSeconds";

struct StepLoss {
  double loss_sum = 0.0, weight_sum = 0.0;  // the loss of the step is their quotient
  int64_t tokens = 0, supervised = 0;
  std::vector<Figure> figures = {};
  // "the loss is nan (first value that is not finite: swiglu at layers.3.ffn)"; the rest says nothing then.
  std::string not_finite = {};
};

struct ValidationLoss {
  double loss;  // mean
  int64_t tokens;
  std::vector<Figure> figures;
};

// What a run takes of memory for its weights and its graphs (docs/memory.md).
struct ObjectiveMemory {
  int64_t weights_bytes;  // of the mapped file; where weights are streamed, of it at one time
  int64_t arena_bytes;    // activations saved for backward, and scratch
  int64_t saved_bytes;    // of the arena: kept from forward for backward
};

class Objective {
 public:
  virtual ~Objective() = default;

  // The steps of an epoch, counted from 0: the samples of each. The same for the same epoch.
  virtual std::vector<std::vector<size_t>> plan_epoch(int64_t epoch) const = 0;
  // Takes the memory that steps need, before the first.
  virtual void prefault() = 0;
  // Adds the gradient of the step's loss to the adapter's gradients. `step` counts from 1: which numbers are drawn.
  virtual StepLoss run_step(int64_t step, std::span<const size_t> samples, Profile* profile) = 0;
  virtual bool validates() const = 0;
  // Error(kNonFinite) where the loss is not finite.
  virtual ValidationLoss validate() = 0;

  virtual ObjectiveMemory memory() const = 0;
  // Frozen products whose gradient is computed, by formulation.
  virtual const FormulationCounts& formulations() const = 0;
  // Of an epoch's steps, floating point, with forward work that is done again.
  virtual double epoch_operations() const = 0;
  virtual const Graph& graph() const = 0;  // of a step; for profiles
};

}  // namespace patina
