// Sequences to train a tiny model on, and what a run says.
#pragma once

#include <string>
#include <vector>

#include "adapter/files.h"
#include "backend/cpu/cpu_backend.h"
#include "data/tokenizer_gguf.h"
#include "support/tiny_lm.h"
#include "train/lm_objective.h"

namespace patina::testing {

// A random sequence of `length` tokens whose tokens from `supervised_from` on are labels.
inline Sequence random_sequence(int length, int supervised_from, uint32_t stream) {
  const RandomStream random(4, RandomUse::kTest, stream);
  Sequence sequence;
  for (int i = 0; i < length; ++i) {
    sequence.ids.push_back(static_cast<int32_t>(random.below(260, static_cast<uint64_t>(i))));
    sequence.supervised.push_back(i > 0 && i >= supervised_from);
  }
  sequence.sample = stream;
  return sequence;
}

// "question" -> "answer" with both end markers, the answer supervised, in the tiny model's own tokens.
inline Sequence pair_sequence(const Tokenizer& tokenizer, const std::string& question, const std::string& answer) {
  Sequence sequence;
  const int32_t end = tokenizer.find("<|im_end|>");
  const auto add = [&](const std::string& text, bool label) {
    for (const int32_t id : tokenizer.encode(text, false)) {
      sequence.ids.push_back(id);
      sequence.supervised.push_back(label);
    }
    sequence.ids.push_back(end);
    sequence.supervised.push_back(label);
  };
  add(question, false);
  add(answer, true);
  return sequence;
}

inline std::unique_ptr<Tokenizer> tokenizer_of(const DecoderModel& model) {
  return Tokenizer::make(tokenizer_spec_from_gguf(model.file()));
}

struct Recorder : TrainObserver {
  void on_step(const StepReport& step) override { steps.push_back(step); }
  void on_epoch(const EpochReport& epoch) override { epochs.push_back(epoch); }
  void on_warning(const std::string& message) override { warnings.push_back(message); }
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  std::vector<std::string> warnings;
};

// A constant rate without warm-up.
inline LmTrainOptions plain_options(int64_t steps, double learning_rate) {
  LmTrainOptions options;
  options.steps = steps;
  options.learning_rate = learning_rate;
  options.schedule = Schedule::kConstant;
  options.warmup = 0;
  return options;
}

inline Recorder train(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                      const LmTrainOptions& options, int threads = 2) {
  ThreadPool pool(threads);
  Recorder recorder;
  lm_trainer(model, adapter, sequences, {}, options, cpu_backend(), pool).run(recorder, [] { return false; });
  return recorder;
}

inline AdapterBase base_of(const DecoderModel& model) {
  AdapterBase base;
  base.name = "tiny";
  base.architecture = model.config().architecture;
  base.layers = model.config().layers;
  base.row_map = [&model](int, std::string_view site) { return model.row_map(site); };
  return base;
}

}  // namespace patina::testing
