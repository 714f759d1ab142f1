// Rectified flow (Liu et al., arXiv 2209.03003): what is drawn for a song in a step, and how its loss counts. With
// noise x1 and latents x0, x_t = t x1 + (1 - t) x0, and the model's velocity at x_t should be x1 - x0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/songs.h"
#include "model/dit.h"

namespace patina {

struct FlowOptions {
  // t: the logistic function of mu + sigma z, z normal, within [t_min, t_max]; or one of the eight steps at which turbo
  // models are run.
  double mu = -0.4, sigma = 1.0, t_min = 0.0, t_max = 1.0;
  bool turbo_steps = false;
  bool snr_weighting = true;  // by flow_snr(), else all steps of t alike
  double snr_gamma = 5.0, t_bias = 0.5;
  bool channel_balance = true;
  double unconditional = 0.15;  // share of draws without conditioning
  double genre = 0.3;           // share of draws with the genre's conditioning, of songs that have one
  int64_t crop_frames = 0;      // 0: whole songs
  bool shuffle = true;          // songs, each epoch in another order
};
// Error(kUsage) where the window leaves (almost) nothing of the law of t.
void check_timesteps(const FlowOptions& options);

// min(gamma, (1 - t)^t_bias / (t (1 - t))), t within [1e-4, 1 - 1e-4].
double flow_snr(double t, const FlowOptions& options);

// What a song is in one step.
struct FlowDraw {
  size_t song;
  int64_t first_frame, frames;
  double t;
  bool unconditional, genre;
  double weight = 1.0;  // of its loss, beside the channels'
  int64_t tokens(int64_t patch) const { return (frames + patch - 1) / patch; }
};

// By (seed, step, song) alone. A crop is a window of crop_frames, cut to whole patches, at a random patch; a shorter
// song is whole.
FlowDraw draw_flow(const Song& song, size_t index, const FlowOptions& options, int64_t patch, uint64_t seed,
                   int64_t step);
// The weights of a step's draws: their mean is 1, over the whole step.
void weigh_draws(std::span<FlowDraw> draws, const FlowOptions& options);

// What a flow graph reads of draws laid end to end.
struct FlowBatch {
  std::vector<float> input, conditioning, times, differences, target, weight;
  std::vector<int32_t> positions, songs, offsets, conditioning_offsets, first;
  std::vector<int32_t> samples, conditioning_samples, conditioning_positions;
  int64_t frames = 0;
};

// Conditioning tokens that a draw has.
int64_t conditioning_tokens(const Song& song, const FlowDraw& draw);

// Noise depends on (seed, noise_step, song, frame, channel): on nothing else that is in the batch. Frames that fill the
// last patch are zeros of weight 0. channel_weights [latent channels]; null_conditioning [encoder_width].
struct FlowLayout {
  const DitConfig& config;
  std::span<const float> channel_weights, null_conditioning;
  uint64_t seed;
  int64_t noise_step;
};
void fill(FlowBatch& batch, std::span<const Song> songs, std::span<const FlowDraw> draws, const FlowLayout& layout);

}  // namespace patina
