#include "data/songs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "formats/printable.h"
#include "quant/decode.h"

namespace patina {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint32_t kHoldOutSite = 2;
constexpr const char *kLatents = "target_latents", *kContext = "context_latents", *kStates = "encoder_hidden_states",
                     *kStatesMask = "encoder_attention_mask", *kFrameMask = "attention_mask";

// Row by row through an aligned copy: tensors of a safetensors file may begin at any byte.
void decode_rows(const SafetensorsTensor& tensor, int64_t first, int64_t count, float* out) {
  const int64_t columns = tensor.shape[1], row_bytes = bytes_of(tensor.dtype, columns);
  const DecodeRow decode = decode_row(tensor.dtype);
  std::vector<std::byte> row(static_cast<size_t>(row_bytes));
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(row.data(), tensor.data + (first + r) * row_bytes, row.size());
    decode(row.data(), 0, columns, out + r * columns);
  }
}

}  // namespace

const SafetensorsTensor& Song::require(const std::string& name, int64_t rows, int64_t columns) const {
  const std::string path = file_.path().string();
  const SafetensorsTensor* tensor = file_.find(name);
  const auto expected = [&] { return fmt::format("[{}, {}]", rows < 0 ? "n" : fmt::to_string(rows), columns); };
  if (tensor == nullptr)
    fail(Error::Kind::kData, "{}: tensor {} is missing, expected one of shape {}; prepare the song again", path, name,
         expected());
  if (tensor->shape.rank() != 2 || tensor->shape[1] != columns || (rows >= 0 && tensor->shape[0] != rows) ||
      tensor->shape[0] < 1)
    fail(Error::Kind::kData, "{}: tensor {} has shape {}, expected {}; prepare the song again", path, name,
         tensor->shape.str(), expected());
  if (!is_decodable(tensor->dtype))
    fail(Error::Kind::kData, "{}: tensor {} has type {}, expected F32, F16 or BF16; prepare the song again", path, name,
         patina::name(tensor->dtype));
  return *tensor;
}

// All ones where the file has no such mask.
std::vector<uint8_t> Song::mask(const std::string& name, int64_t count) const {
  std::vector<uint8_t> keep(static_cast<size_t>(count), 1);
  const SafetensorsTensor* tensor = file_.find(name);
  if (tensor == nullptr) return keep;
  const std::string path = file_.path().string();
  if (tensor->shape.elements() != count)
    fail(Error::Kind::kData, "{}: tensor {} has shape {}, expected [{}]; prepare the song again", path, name,
         tensor->shape.str(), count);
  const auto width = static_cast<size_t>(info(tensor->dtype).block_bytes);
  for (size_t i = 0; i < keep.size(); ++i) {
    // Zero in every type of mask, floating point too, is all bits zero; -0 does not come from comparisons.
    const std::byte* number = tensor->data + i * width;
    keep[i] = std::any_of(number, number + width, [](std::byte byte) { return byte != std::byte{0}; });
  }
  return keep;
}

Song::Conditioning Song::read_conditioning(const std::string& ending, int64_t width) const {
  const SafetensorsTensor& states = require(kStates + ending, -1, width);
  Conditioning read{&states, {}};
  const std::vector<uint8_t> keep = mask(kStatesMask + ending, states.shape[0]);
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i] != 0) read.rows.push_back(static_cast<int32_t>(i));
  if (read.rows.empty())
    fail(Error::Kind::kData, "{}: {}{} leaves no conditioning token; prepare the song again", file_.path().string(),
         kStatesMask, ending);
  check_finite(states, states.shape[0]);
  return read;
}

void Song::check_finite(const SafetensorsTensor& tensor, int64_t rows) const {
  std::vector<float> row(static_cast<size_t>(tensor.shape[1]));
  for (int64_t r = 0; r < rows; ++r) {
    decode_rows(tensor, r, 1, row.data());
    for (const float value : row)
      if (!std::isfinite(value))
        fail(Error::Kind::kData, "{}: tensor {} holds {} in row {}, expected finite numbers; prepare the song again",
             file_.path().string(), printable(tensor.name), value, r);
  }
}

Song Song::open(const fs::path& path, const SongWidths& widths) {
  Song song(SafetensorsFile::open(path));
  song.name_ = path.stem().string();
  song.latents_ = &song.require(kLatents, -1, widths.latent_channels);
  const int64_t frames = song.latents_->shape[0];
  song.context_ = &song.require(kContext, frames, widths.context_channels);
  const std::vector<uint8_t> keep = song.mask(kFrameMask, frames);
  const auto end = std::ranges::find(keep, 0);
  song.frames_ = end - keep.begin();
  if (song.frames_ == 0 || std::find(end, keep.end(), 1) != keep.end())
    fail(Error::Kind::kData, "{}: {} is no song followed by padding: it has {}; prepare the song again", path.string(),
         kFrameMask, song.frames_ == 0 ? "no frame" : fmt::format("a gap at frame {}", song.frames_));
  song.check_finite(*song.latents_, song.frames_);
  song.check_finite(*song.context_, song.frames_);
  song.plain_ = song.read_conditioning("", widths.conditioning);
  constexpr const char* kGenre = "_genre";
  if (song.file_.find(std::string(kStates) + kGenre) != nullptr)
    song.genre_ = song.read_conditioning(kGenre, widths.conditioning);
  return song;
}

void Song::latents(int64_t first, int64_t count, float* out) const { decode_rows(*latents_, first, count, out); }
void Song::context(int64_t first, int64_t count, float* out) const { decode_rows(*context_, first, count, out); }

void Song::conditioning(bool genre, float* out) const {
  const Conditioning& from = genre ? genre_ : plain_;
  PATINA_CHECK(from.states != nullptr, "{} has no genre", name_);
  for (const int32_t row : from.rows) {
    decode_rows(*from.states, row, 1, out);
    out += from.states->shape[1];
  }
}

int64_t SongSet::frames() const {
  int64_t sum = 0;
  for (const Song& song : songs) sum += song.frames();
  return sum;
}

SongSet load_songs(const fs::path& directory, const SongWidths& widths, int64_t limit) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    fail(Error::Kind::kData, "{}: is no directory; give the directory of the cached songs", directory.string());
  std::vector<fs::path> paths;
  fs::directory_iterator entries(directory, error);
  if (error) fail(Error::Kind::kIo, "{}: cannot be listed: {}", directory.string(), error.message());
  for (const fs::directory_entry& entry : entries)
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  std::ranges::sort(paths);
  if (paths.empty())
    fail(Error::Kind::kData, "{}: holds no .safetensors file, expected one for each cached song", directory.string());
  if (limit > 0 && limit < std::ssize(paths)) paths.resize(static_cast<size_t>(limit));
  SongSet set;
  Sha256 fingerprint;
  for (const fs::path& path : paths) {
    set.songs.push_back(Song::open(path, widths));
    Sha256 bytes;
    bytes.update(set.songs.back().mapped());
    set.songs.back().release();
    fingerprint.update(fmt::format("{} {}\n", path.filename().string(), bytes.hex_digest()));
  }
  set.fingerprint = fingerprint.hex_digest();
  return set;
}

std::vector<Song> hold_out(SongSet& set, double fraction, uint64_t seed) {
  const size_t count = set.songs.size();
  const size_t wanted = std::max<size_t>(1, static_cast<size_t>(fraction * static_cast<double>(count) + 0.5));
  if (wanted >= count)
    fail(Error::Kind::kUsage, "a fraction of {} of {} songs to validate on leaves none to train on", fraction, count);
  const RandomStream random(seed, RandomUse::kShuffle, kHoldOutSite);
  std::vector<std::pair<double, size_t>> drawn;
  for (size_t i = 0; i < count; ++i) drawn.emplace_back(random.uniform(i), i);
  std::sort(drawn.begin(), drawn.end());
  std::vector<uint8_t> held(count, 0);
  for (size_t i = 0; i < wanted; ++i) held[drawn[i].second] = 1;
  std::vector<Song> rest, out;
  for (size_t i = 0; i < count; ++i) (held[i] != 0 ? out : rest).push_back(std::move(set.songs[i]));
  set.songs = std::move(rest);
  return out;
}

ChannelStats measure_channels(std::span<const Song> songs, int64_t channels) {
  const auto width = static_cast<size_t>(channels);
  ChannelStats stats{std::vector<double>(width), std::vector<double>(width), std::ssize(songs), 0};
  std::vector<float> frame(width);
  const auto each_frame = [&](auto take) {
    for (const Song& song : songs) {
      for (int64_t f = 0; f < song.frames(); ++f) {
        song.latents(f, 1, frame.data());
        for (size_t c = 0; c < width; ++c) take(c, static_cast<double>(frame[c]));
      }
      song.release();
    }
  };
  for (const Song& song : songs) stats.frames += song.frames();
  const double count = static_cast<double>(std::max<int64_t>(stats.frames, 1));
  each_frame([&](size_t c, double value) { stats.mean[c] += value / count; });
  each_frame(
      [&](size_t c, double value) { stats.deviation[c] += (value - stats.mean[c]) * (value - stats.mean[c]) / count; });
  for (double& deviation : stats.deviation) deviation = std::sqrt(deviation);
  return stats;
}

std::optional<ChannelStats> read_channel_stats(const fs::path& directory, int64_t channels) {
  const fs::path path = directory / kChannelStatsFile;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const auto refuse = [&](const std::string& what) {
    fail(Error::Kind::kData, "{}: {}; write it again with --prepare-stats", path.string(), what);
  };
  ChannelStats stats{};
  try {
    const Json read = Json::parse(read_file(path));
    const auto numbers = [&](const char* key) {
      const std::vector<double> values = read.at(key).get<std::vector<double>>();
      if (std::ssize(values) != channels)
        refuse(fmt::format("{} has {} numbers, expected {}", key, values.size(), channels));
      for (const double value : values)
        if (!std::isfinite(value)) refuse(fmt::format("{} holds {}, expected finite numbers", key, value));
      return values;
    };
    stats = {numbers("channel_mean"), numbers("channel_std"), read.value("n_samples", int64_t{0}),
             read.value("n_frames", int64_t{0})};
    for (const double deviation : stats.deviation)
      if (deviation <= 0.0) refuse(fmt::format("channel_std holds {}, expected numbers above zero", deviation));
  } catch (const Json::exception& error) {
    refuse(fmt::format("cannot be read ({})", printable(error.what())));
  }
  return stats;
}

void write_channel_stats(const fs::path& directory, const ChannelStats& stats) {
  const Json text = {{"channel_mean", stats.mean},
                     {"channel_std", stats.deviation},
                     {"n_samples", stats.songs},
                     {"n_frames", stats.frames}};
  write_file(directory / kChannelStatsFile, text.dump(1) + "\n");
}

std::vector<float> channel_weights(const ChannelStats& stats) {
  constexpr double kLeastDeviation = 1e-6;
  std::vector<double> inverse;
  double sum = 0.0;
  for (const double deviation : stats.deviation) {
    inverse.push_back(1.0 / std::max(deviation, kLeastDeviation));
    sum += inverse.back();
  }
  constexpr double kMostShare = 0.9;  // of one channel
  for (size_t c = 0; c < inverse.size(); ++c)
    if (inverse.size() > 1 && inverse[c] > kMostShare * sum)
      fail(Error::Kind::kData,
           "latent channel {} hardly varies (deviation {:g}) and would be {:.0f} % of a loss whose channels weigh 1 / "
           "deviation; prepare the songs again, or give --no-channel-balance",
           c, stats.deviation[c], 100.0 * inverse[c] / sum);
  std::vector<float> weights;
  for (const double value : inverse)
    weights.push_back(static_cast<float>(value / (sum / static_cast<double>(inverse.size()))));
  return weights;
}

}  // namespace patina
