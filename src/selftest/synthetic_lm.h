// The synthetic language model: two layers of random weights, with everything that a real one has.
#pragma once

#include "model/decoder_model.h"
#include "selftest/trainable_model.h"
#include "train/loss_runner.h"

namespace patina {

// A llama: D 256, F 512, 8 heads on 2 key/value heads, untied head, rows of q and k in rope pairs as its files have
// them; a byte-level vocabulary (token 3 + b is byte b, behind end of text, begin and end of a turn) and ChatML.
class SyntheticLm : public TrainableModel {
 public:
  static constexpr int kLayers = 2;
  static constexpr int32_t kEndOfText = 0, kTurnBegin = 1, kTurnEnd = 2, kFirstByte = 3;
  static constexpr int64_t kVocabulary = kFirstByte + 257;

  // Writes it as a GGUF file into `directory`, and loads that.
  SyntheticLm(DType dtype, const std::filesystem::path& directory, ThreadPool& pool);

  const DecoderModel& decoder() const { return model_; }
  std::span<const Sequence> sequences() const { return sequences_; }

  std::vector<Site> sites() const override { return model_.sites(); }
  size_t items() const override { return sequences_.size(); }
  std::unique_ptr<TrainableGraph> build(Adapter* adapter, const TrainableOptions& options) const override;
  double exact_loss(std::span<const AdaptedSite> adapter, const Items& items) const override;
  std::vector<double> train(Adapter& adapter, const Course& course, const Backend& backend, ThreadPool& pool,
                            FunctionRef<void(int64_t)> after_step) const override;
  AdapterBase base() const override;
  std::string module_of(const Site& site) const override;

 private:
  const DecoderModel model_;
  const std::vector<std::byte> guard_weight_;  // [V, 2F] of the model's type
  std::vector<Sequence> sequences_;
};

// `length` random tokens, labels from `supervised_from` on; each `stream` has its own.
Sequence random_sequence(int length, int supervised_from, uint32_t stream);

}  // namespace patina
