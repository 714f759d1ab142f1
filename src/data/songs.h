// Cached songs: a directory with one safetensors file a song, as the preprocessing of ACE-Step trainers writes them.
// Used in place: numbers are decoded when a step needs them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/safetensors.h"

namespace patina {

// Widths that a model expects.
struct SongWidths {
  int64_t latent_channels, context_channels, conditioning;
};

// Tensors of a file: target_latents [frames, 64], context_latents [frames, 128], attention_mask [frames] (optional:
// which frames are the song's; the rest are padding at its end), encoder_hidden_states [E, 2048],
// encoder_attention_mask [E] (optional: which of them count), and the last two once more with the ending _genre
// (optional: another conditioning). F32, F16 or BF16; masks of any numeric type.
class Song {
 public:
  // Error(kData) naming file and tensor: what is missing, of another shape, or not finite.
  static Song open(const std::filesystem::path& path, const SongWidths& widths);

  const std::string& name() const { return name_; }  // the file's, without its ending
  int64_t frames() const { return frames_; }
  bool has_genre() const { return genre_.states != nullptr; }
  // E: tokens that count, at least 1.
  int64_t conditioning_tokens(bool genre) const { return std::ssize((genre ? genre_ : plain_).rows); }

  // Frames [first, first + count) as [count, channels].
  void latents(int64_t first, int64_t count, float* out) const;
  void context(int64_t first, int64_t count, float* out) const;
  // [E, width].
  void conditioning(bool genre, float* out) const;

  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  std::span<const std::byte> mapped() const { return file_.mapped(); }
  // Gives the memory of the file's pages back until they are read again, so that a run holds but the songs in use.
  void release() const { release_pages(file_.mapped()); }

 private:
  struct Conditioning {
    const SafetensorsTensor* states = nullptr;
    std::vector<int32_t> rows;  // that count
  };
  explicit Song(SafetensorsFile file) : file_(std::move(file)) {}
  const SafetensorsTensor& require(const std::string& name, int64_t rows, int64_t columns) const;
  std::vector<uint8_t> mask(const std::string& name, int64_t count) const;
  Conditioning read_conditioning(const std::string& ending, int64_t width) const;
  void check_finite(const SafetensorsTensor& tensor, int64_t rows) const;

  SafetensorsFile file_;
  std::string name_;
  int64_t frames_ = 0;
  const SafetensorsTensor *latents_ = nullptr, *context_ = nullptr;
  Conditioning plain_, genre_;
};

struct SongSet {
  std::vector<Song> songs;  // by file name
  std::string fingerprint;  // SHA-256 over the names and bytes of the files
  int64_t frames() const;
};
// The first `limit` songs of a directory, all where it is 0. Error(kData) where it holds none.
SongSet load_songs(const std::filesystem::path& directory, const SongWidths& widths, int64_t limit);
// Takes a part of the songs, at least one, out of the set: the same for the same seed and names. Error(kUsage) where
// none would be left.
std::vector<Song> hold_out(SongSet& set, double fraction, uint64_t seed);

// How each latent channel is spread: channel_stats.json.
struct ChannelStats {
  std::vector<double> mean, deviation;
  int64_t songs, frames;
};
ChannelStats measure_channels(std::span<const Song> songs, int64_t channels);
inline constexpr const char* kChannelStatsFile = "channel_stats.json";
// Nothing where the directory has no such file. Error(kData) where it is damaged, of other channels, or holds a
// deviation that is not above zero.
std::optional<ChannelStats> read_channel_stats(const std::filesystem::path& directory, int64_t channels);
void write_channel_stats(const std::filesystem::path& directory, const ChannelStats& stats);
// (1 / max(deviation, 1e-6)) over the mean of the same. Error(kData) where one channel would be nearly all of it.
std::vector<float> channel_weights(const ChannelStats& stats);

}  // namespace patina
