#include "data/songs.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/song_files.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

using testing::SongFile;
using testing::write_song;

constexpr SongWidths kWidths{4, 8, 24};

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Songs, EveryTypeGivesTheSameSongAndMasksCutIt) {
  const TempDir directory;
  SongFile file;
  file.padding = 6;
  file.masked = 3;
  file.genre = true;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    file.dtype = dtype;
    write_song(directory.path() / fmt::format("{}.safetensors", name(dtype)), 1, file);
  }
  const SongSet set = load_songs(directory.path(), kWidths, 0);
  ASSERT_EQ(set.songs.size(), 3u);
  EXPECT_EQ(set.frames(), 120);
  std::vector<float> exact(4 * 40), got(4 * 40), conditioning(5 * 24);
  const Song& f32 = set.songs[2];  // by name: BF16, F16, F32
  EXPECT_EQ(f32.name(), "F32");
  f32.latents(0, 40, exact.data());
  for (const Song& song : set.songs) {
    EXPECT_EQ(song.frames(), 40);
    EXPECT_TRUE(song.has_genre());
    EXPECT_EQ(song.conditioning_tokens(false), 5);
    song.latents(0, 40, got.data());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact[i], 0.02f);
    song.conditioning(true, conditioning.data());
    EXPECT_NE(conditioning[0], conditioning[24]);
  }
  f32.latents(17, 1, got.data());
  EXPECT_EQ(got[3], exact[17 * 4 + 3]);
  EXPECT_EQ(load_songs(directory.path(), kWidths, 2).songs.size(), 2u);
  EXPECT_NE(load_songs(directory.path(), kWidths, 2).fingerprint, set.fingerprint);
}

TEST(Songs, WhatIsWrongIsNamed) {
  const TempDir directory;
  const std::filesystem::path path = directory.path() / "a.safetensors";
  const auto opened = [&](const SongFile& file, const SongWidths& widths = kWidths) {
    write_song(path, 1, file);
    return complaint([&] { Song::open(path, widths); });
  };
  EXPECT_EQ(opened({}), "");
  for (const std::string name : {"target_latents", "context_latents", "encoder_hidden_states"}) {
    SongFile file;
    file.leave_out = name;
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "tensor " + name + " is missing", opened(file));
  }
  for (const std::string name : {"attention_mask", "encoder_attention_mask"}) {
    SongFile file;
    file.leave_out = name;
    EXPECT_EQ(opened(file), "") << name;
  }
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "target_latents has shape [40, 4], expected [n, 5]",
                      opened({}, {5, 8, 24}));
  SongFile silent;
  silent.conditioning = 0;
  silent.masked = 2;
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "leaves no conditioning token", opened(silent));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "holds no .safetensors file",
                      complaint([&] { load_songs(TempDir().path(), kWidths, 0); }));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "is no directory", complaint([&] { load_songs(path, kWidths, 0); }));
}

TEST(Songs, ChannelStatsGoRoundAndBalance) {
  const TempDir directory;
  for (const uint32_t i : {1u, 2u}) write_song(directory.path() / fmt::format("{}.safetensors", i), i);
  EXPECT_EQ(read_channel_stats(directory.path(), 4), std::nullopt);
  const SongSet set = load_songs(directory.path(), kWidths, 0);
  const ChannelStats stats = measure_channels(set.songs, 4);
  EXPECT_EQ(stats.frames, 80);
  write_channel_stats(directory.path(), stats);
  const auto read = read_channel_stats(directory.path(), 4);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->deviation, stats.deviation);
  const std::vector<float> weights = channel_weights(*read);
  float sum = 0;
  for (size_t c = 0; c < 4; ++c) {
    sum += weights[c];
    EXPECT_NEAR(weights[c] * stats.deviation[c], weights[0] * stats.deviation[0], 1e-6);
  }
  EXPECT_NEAR(sum, 4.0f, 1e-5f);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "channel_mean has 4 numbers, expected 5",
                      complaint([&] { read_channel_stats(directory.path(), 5); }));
  ChannelStats still = stats;
  still.deviation[2] = 0.0;
  write_channel_stats(directory.path(), still);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "channel_std holds 0, expected numbers above zero",
                      complaint([&] { read_channel_stats(directory.path(), 4); }));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "latent channel 2 hardly varies",
                      complaint([&] { channel_weights(still); }));
  write_file(directory.path() / kChannelStatsFile, "{");
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "cannot be read",
                      complaint([&] { read_channel_stats(directory.path(), 4); }));
}

TEST(Songs, HeldOutSongsAreTheSameForTheSameSeed) {
  const TempDir directory;
  for (uint32_t i = 0; i < 6; ++i) write_song(directory.path() / fmt::format("{}.safetensors", i), i);
  const auto held = [&](uint64_t seed) {
    SongSet set = load_songs(directory.path(), kWidths, 0);
    std::string names;
    for (const Song& song : hold_out(set, 0.34, seed)) names += song.name();
    EXPECT_EQ(set.songs.size(), 4u);
    return names;
  };
  EXPECT_EQ(held(1), held(1));
  SongSet one = load_songs(directory.path(), kWidths, 1);
  EXPECT_THROW(hold_out(one, 0.5, 1), Error);
}

}  // namespace
}  // namespace patina
