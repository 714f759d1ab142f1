// Songs of named random numbers (tiny_dit.h), laid end to end for a flow graph as training lays them.
#pragma once

#include <cstdint>
#include <vector>

#include "model/dit.h"
#include "support/tiny_dit.h"

namespace patina::testing {

struct SongShape {
  int64_t frames, conditioning;
  double t, r;
};

class FlowSongs {
 public:
  FlowSongs(const DitConfig& config, const std::vector<SongShape>& songs) : config_(config), songs_(songs) {
    const int64_t p = config.patch, in = config.in_channels() * p, out = config.latent_channels * p;
    for (size_t s = 0; s < songs.size(); ++s) {
      const SongShape& song = songs[s];
      const auto named = [&](const char* what, int64_t rows, int64_t columns) {
        return named_floats(fmt::format("{}.{}", s, what), rows * columns, 1);
      };
      const std::vector<float> latent = named("latent", song.frames, config.latent_channels),
                               target = named("target", song.frames, config.latent_channels),
                               context = named("context", song.frames, config.context_channels),
                               conditioning = named("conditioning", song.conditioning, config.encoder_width);
      const int64_t tokens = (song.frames + p - 1) / p;
      for (int64_t t = 0; t < tokens; ++t) {
        input_.resize(input_.size() + static_cast<size_t>(in));
        target_.resize(target_.size() + static_cast<size_t>(out));
        weight_.resize(weight_.size() + static_cast<size_t>(out));
        for (int64_t k = 0; k < p && t * p + k < song.frames; ++k) {
          const int64_t frame = t * p + k;
          const auto at = [](std::vector<float>& rows, int64_t width, int64_t column) -> float& {
            return rows[rows.size() - static_cast<size_t>(width - column)];
          };
          for (int64_t c = 0; c < config.context_channels; ++c)
            at(input_, in, c * p + k) = context[static_cast<size_t>(frame * config.context_channels + c)];
          for (int64_t c = 0; c < config.latent_channels; ++c) {
            const size_t from = static_cast<size_t>(frame * config.latent_channels + c);
            at(input_, in, (config.context_channels + c) * p + k) = latent[from];
            at(target_, out, c * p + k) = target[from];
            at(weight_, out, c * p + k) = 1.0f;
          }
        }
        positions_.push_back(static_cast<int32_t>(t));
        song_of_.push_back(static_cast<int32_t>(s));
      }
      conditioning_.insert(conditioning_.end(), conditioning.begin(), conditioning.end());
      offsets_.push_back(static_cast<int32_t>(positions_.size()));
      conditioning_offsets_.push_back(conditioning_offsets_.back() + static_cast<int32_t>(song.conditioning));
      first_.push_back(0);
      for (auto [sinusoids, t] : {std::pair(&times_, song.t), std::pair(&differences_, song.t - song.r)}) {
        sinusoids->resize(sinusoids->size() + static_cast<size_t>(kTimeChannels));
        time_sinusoid(t, sinusoids->data() + sinusoids->size() - kTimeChannels);
      }
    }
  }

  std::vector<int64_t> sizes() const {
    return FlowGraph::sizes(std::ssize(positions_), conditioning_offsets_.back(), std::ssize(first_));
  }
  FlowLimits limits() const {
    return {std::ssize(positions_) + 3, conditioning_offsets_.back() + 2, std::ssize(first_) + 1,
            std::ssize(positions_)};
  }

  template <typename AnyExecutor>
  void bind(AnyExecutor& executor, const FlowGraph& flow) {
    executor.bind(flow.input, input_.data());
    executor.bind(flow.conditioning, conditioning_.data());
    executor.bind(flow.times, times_.data());
    executor.bind(flow.differences, differences_.data());
    executor.bind(flow.positions, positions_.data());
    executor.bind(flow.songs, song_of_.data());
    executor.bind(flow.offsets, offsets_.data());
    executor.bind(flow.conditioning_offsets, conditioning_offsets_.data());
    executor.bind(flow.first, first_.data());
    executor.bind(flow.target, target_.data());
    executor.bind(flow.weight, weight_.data());
  }

  // Of song s, as [frames, latents].
  std::vector<float> velocity(const Tensor& patches, size_t s) const {
    const int64_t p = config_.patch, out = config_.latent_channels * p;
    std::vector<float> frames;
    for (int64_t frame = 0; frame < songs_[s].frames; ++frame)
      for (int64_t c = 0; c < config_.latent_channels; ++c)
        frames.push_back(patches.f32()[(offsets_[s] + frame / p) * out + c * p + frame % p]);
    return frames;
  }
  // The rows of song s among those of all.
  std::vector<float> rows(const std::vector<float>& all, size_t s) const {
    const auto width = std::ssize(all) / std::ssize(positions_);
    return {all.begin() + offsets_[s] * width, all.begin() + offsets_[s + 1] * width};
  }

 private:
  const DitConfig config_;
  const std::vector<SongShape> songs_;
  std::vector<float> input_, target_, weight_, conditioning_, times_, differences_;
  std::vector<int32_t> positions_, song_of_, offsets_{0}, conditioning_offsets_{0}, first_;
};

}  // namespace patina::testing
