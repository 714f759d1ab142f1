// Training a diffusion transformer: the flow-matching loss of cached songs.
#pragma once

#include <array>

#include "train/flow_runner.h"
#include "train/trainer.h"

namespace patina {

struct FlowTrainOptions : TrainOptions {
  FlowOptions flow;
  int64_t batch = 1;       // songs in memory at once: changes the result by rounding only
  int64_t step_songs = 4;  // of an optimizer step
};

// Frames and channels of a step count alike, whatever song and micro-batch they are in: a step's loss is the sum of its
// weighted squared errors over the number of its latents.
class FlowObjective final : public Objective {
 public:
  // `songs`, and those to validate on (which may be none), must outlive it; so must the channels' weights.
  FlowObjective(const DitModel& model, Adapter& adapter, std::span<const Song> songs, std::span<const Song> validation,
                std::span<const float> channel_weights, const FlowTrainOptions& options, const Backend& backend,
                ThreadPool& pool);

  std::vector<std::vector<size_t>> plan_epoch(int64_t epoch) const override;
  void prefault() override { runner_.prefault(); }
  StepLoss run_step(int64_t step, std::span<const size_t> samples, Profile* profile) override;
  bool validates() const override { return validation_runner_ != nullptr; }
  // At fixed timesteps, with fixed noise, all channels and timesteps alike: the same for every run and seed.
  ValidationLoss validate() override;

  ObjectiveMemory memory() const override { return memory_; }
  const FormulationCounts& formulations() const override { return runner_.formulations(); }
  double epoch_operations() const override;
  const Graph& graph() const override { return runner_.graph(); }
  double epoch_audio_seconds() const;

 private:
  FlowLayout layout(int64_t step) const;

  const DitModel& model_;
  std::span<const Song> songs_, validation_;
  std::span<const float> channel_weights_;
  const FlowTrainOptions options_;
  FlowRunner runner_;
  std::unique_ptr<FlowRunner> validation_runner_;  // null without a validation set
  std::vector<float> even_weights_;                // of channels, in validation
  ObjectiveMemory memory_{};
  FlowBatch batch_;
};

// The largest batch of `batch` songs under the options: the limits of the graph.
FlowLimits flow_limits(std::span<const Song> songs, const FlowOptions& options, int64_t batch, int64_t patch);

// What a batch at the limits takes on the host.
int64_t batch_bytes(const FlowLimits& limits, const DitConfig& config);

}  // namespace patina
