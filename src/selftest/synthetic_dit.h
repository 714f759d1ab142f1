// The synthetic diffusion transformer: two layers of random weights, with everything that a real one has, and songs.
#pragma once

#include "model/dit_model.h"
#include "selftest/plain_dit.h"
#include "selftest/trainable_model.h"
#include "train/flow_matching.h"

namespace patina {

// An ACE-Step DiT: D 256, F 512, 8 heads on 2 key/value heads of width 64, a windowed and a full layer, 12 channels in
// and 4 out, conditioning of width 768. As in a trained one, what comes in as noise comes out (T5 needs no long course
// for it): proj_out is proj_in of the latents, turned round.
class SyntheticDit : public TrainableModel {
 public:
  static constexpr int kLayers = 2;
  static constexpr int64_t kContextChannels = 8, kLatentChannels = 4, kEncoderWidth = 768, kWindow = 2;

  // Writes it as a GGUF file into `directory`, songs beside it, and loads both.
  SyntheticDit(DType dtype, const std::filesystem::path& directory, ThreadPool& pool);

  const DitModel& dit() const { return model_; }
  std::span<const Song> songs() const { return songs_; }
  // What an item is of its song: whole songs and windows, at several t, one without conditioning, one with its genre's.
  std::span<const FlowDraw> draws() const { return draws_; }
  std::span<const float> channel_weights() const;
  FlowLayout layout() const;

  std::vector<Site> sites() const override { return model_.sites(); }
  size_t items() const override { return draws_.size(); }
  std::unique_ptr<TrainableGraph> build(Adapter* adapter, const TrainableOptions& options) const override;
  double exact_loss(std::span<const AdaptedSite> adapter, const Items& items) const override;
  std::vector<double> train(Adapter& adapter, const Course& course, const Backend& backend, ThreadPool& pool,
                            FunctionRef<void(int64_t)> after_step) const override;
  AdapterBase base() const override;
  std::string module_of(const Site& site) const override;

 private:
  // Item `index` as the numbers that its song was made of.
  PlainSong plain_song(size_t index) const;

  const std::filesystem::path directory_;
  const DitModel model_;
  const std::vector<std::byte> guard_weight_;  // [latents * P, 2F] of the model's type
  std::vector<Song> songs_;
  std::vector<FlowDraw> draws_;
};

// A song of so many frames, and `conditioning` tokens, whose numbers depend on `stream`.
struct SyntheticSong {
  int64_t frames, conditioning;
  uint32_t stream;
  uint32_t shuffle = 0;  // not 0: the latents of its frames in another order, which depends on this

  std::vector<double> latents() const;           // [frames, latent channels]
  std::vector<double> context() const;           // [frames, context channels]
  std::vector<double> states(bool genre) const;  // [conditioning, encoder width]
  // Through a file, with frames and conditioning behind the end that masks leave out.
  Song written(const std::filesystem::path& path) const;
};

}  // namespace patina
