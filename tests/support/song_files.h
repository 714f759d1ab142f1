// Cached songs of structured latents in files: each channel a few slow sines that depend on the song, so that a model
// can learn them.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/philox.h"
#include "formats/safetensors.h"
#include "quant/encode.h"

namespace patina::testing {

struct SongFile {
  int64_t frames = 40, padding = 0;  // frames behind the song's end
  int64_t conditioning = 5, masked = 0;
  int64_t latent_channels = 4, context_channels = 8, width = 24;
  bool shuffled = false;  // frames in random order: nothing to learn but their spread
  bool genre = false;
  DType dtype = DType::kF32;
  std::string leave_out = {};  // a tensor
};

inline void write_song(const std::filesystem::path& path, uint32_t seed, const SongFile& song = {}) {
  const RandomStream random(7, RandomUse::kTest, seed);
  uint64_t next = 0;
  const auto normal = [&] { return random.normal(next++); };
  const int64_t rows = song.frames + song.padding;
  std::vector<float> latents(static_cast<size_t>(rows * song.latent_channels), 9.0f);
  std::vector<int64_t> order;
  for (int64_t f = 0; f < song.frames; ++f) order.push_back(f);
  if (song.shuffled)
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, next++)]);
  for (int64_t c = 0; c < song.latent_channels; ++c)
    for (const double period : {3.0, 9.0}) {
      const double size = normal(), phase = 3.0 * normal();
      for (int64_t f = 0; f < song.frames; ++f) {
        float& at = latents[static_cast<size_t>(order[static_cast<size_t>(f)] * song.latent_channels + c)];
        if (period == 3.0) at = 0.0f;
        at += static_cast<float>(size * std::sin(static_cast<double>(f) / period + phase));
      }
    }
  std::vector<float> context(static_cast<size_t>(rows * song.context_channels));
  for (size_t i = 0; i < context.size(); ++i)
    context[i] = static_cast<int64_t>(i) % song.context_channels < song.context_channels / 2 ? 0.0f : 1.0f;
  SafetensorsWriter writer;
  const auto add = [&](const std::string& name, const Shape& shape, const std::vector<float>& values, DType dtype) {
    if (name == song.leave_out) return;
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, std::ssize(values))));
    encode_row(dtype)(values.data(), std::ssize(values), bytes.data());
    writer.add(name, dtype, shape, bytes);
  };
  const auto add_mask = [&](const std::string& name, int64_t ones, int64_t zeros) {
    std::vector<uint8_t> mask(static_cast<size_t>(ones + zeros), 1);
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(ones), mask.end(), uint8_t{0});
    if (name != song.leave_out) writer.add(name, DType::kBool, {ones + zeros}, std::as_bytes(std::span(mask)));
  };
  add("target_latents", {rows, song.latent_channels}, latents, song.dtype);
  add("context_latents", {rows, song.context_channels}, context, song.dtype);
  add_mask("attention_mask", song.frames, song.padding);
  for (const std::string ending : {"", "_genre"}) {
    if (!ending.empty() && !song.genre) continue;
    std::vector<float> states;
    for (int64_t i = 0; i < (song.conditioning + song.masked) * song.width; ++i)
      states.push_back(static_cast<float>(normal()));
    add("encoder_hidden_states" + ending, {song.conditioning + song.masked, song.width}, states, song.dtype);
    add_mask("encoder_attention_mask" + ending, song.conditioning, song.masked);
  }
  writer.set_metadata("caption", "a song");
  writer.write(path);
}

}  // namespace patina::testing
