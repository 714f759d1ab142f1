// The language model's own rungs: its data, its loss, inference, and recompute of all of it.
#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "data/tokenizer_gguf.h"
#include "ops/cross_entropy.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "selftest/measures.h"
#include "selftest/plain.h"
#include "selftest/synthetic_lm.h"
#include "selftest/synthetic_weight.h"
#include "selftest/tables.h"
#include "selftest/trace.h"
#include "selftest/trial.h"

namespace patina {

namespace {

using Measured = std::vector<double>;
using Numbers = std::vector<double>;

const SyntheticLm& lm(RungContext& context) {
  const auto* const model = dynamic_cast<const SyntheticLm*>(&context.model());
  PATINA_CHECK(model != nullptr, "not a language model");
  return *model;
}

// --- T3: training's forward and inference's ---

// What an adapter changes inside a layer shows in these, whatever nodes it consists of.
std::vector<std::string> traced_places() {
  std::vector<std::string> places = {"output_norm"};
  for (int i = 0; i < SyntheticLm::kLayers; ++i)
    for (const char* what : {"attn_norm", "q", "k", "attn", "ffn_norm", "ffn"})
      places.push_back(fmt::format("layers.{}.{}", i, what));
  return places;
}

void* address(const std::vector<int32_t>& ints) { return const_cast<int32_t*>(ints.data()); }

Trace training_trace(RungContext& context, Adapter& adapter, const std::vector<int32_t>& ids) {
  const int64_t count = std::ssize(ids);
  const auto built = build_loss_graph(lm(context).decoder(), &adapter, {count, 1, count}, GradientOptions{});
  Executor executor(built->graph, *context.parts.backend, context.pool);
  std::vector<int32_t> positions, offsets = {0, static_cast<int32_t>(count)}, first = {0}, rows = {0}, labels = {7};
  for (int32_t i = 0; i < count; ++i) positions.push_back(i);
  const float seed = 1;
  executor.bind(built->tokens, address(ids));
  executor.bind(built->positions, address(positions));
  executor.bind(built->offsets, address(offsets));
  executor.bind(built->first, address(first));
  executor.bind(built->supervised.at(0).rows, address(rows));
  executor.bind(built->supervised.at(0).labels, address(labels));
  executor.bind(built->gradients.seed, const_cast<float*>(&seed));
  Trace trace;
  run_traced(executor, built->sizes(count, 1, 1), traced_places(), "supervised", trace);
  return trace;
}

// Some tokens at once, then one by one, as generation goes.
Trace inference_trace(RungContext& context, Adapter& adapter, const std::vector<int32_t>& ids) {
  const size_t prompt = ids.size() / 2;
  const auto built =
      build_cache_graph(lm(context).decoder(), &adapter, std::ssize(ids), static_cast<int64_t>(prompt), 1);
  Executor executor(built->graph, *context.parts.backend, context.pool);
  Trace trace;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = done == 0 ? prompt : 1;
    const int32_t begin = static_cast<int32_t>(done), added = static_cast<int32_t>(count);
    std::vector<int32_t> tokens(ids.begin() + begin, ids.begin() + begin + added), positions,
        q_offsets = {0, added}, kv_offsets = {0, begin + added}, first = {begin}, rows = {0};
    for (int32_t i = 0; i < added; ++i) positions.push_back(begin + i);
    executor.bind(built->tokens, tokens.data());
    executor.bind(built->positions, positions.data());
    executor.bind(built->q_offsets, q_offsets.data());
    executor.bind(built->kv_offsets, kv_offsets.data());
    executor.bind(built->first, first.data());
    executor.bind(built->position, first.data());
    executor.bind(built->rows, rows.data());
    const int64_t sizes[] = {added, 1};
    run_traced(executor, sizes, traced_places(), "last", trace);
    done += count;
  }
  return trace;
}

Measured measure_inference(RungContext& context) {
  const std::vector<int32_t> ids = random_sequence(12, 0, 40).ids;
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lora(), &dora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, layer_sites(context.model()), *tried);
    Prelude(adapter.get(), *context.parts.backend, context.pool).run();
    const Trace training = training_trace(context, *adapter, ids), inference = inference_trace(context, *adapter, ids);
    measured[0] = larger(measured[0], worst_place(inference, training));
  }
  return measured;
}

// --- LM1: how samples become rows and labels ---

// A sample put together from texts and marks, with what is supervised.
class Expected {
 public:
  Expected& text(std::string_view bytes, bool label) {
    for (const char byte : bytes) id(SyntheticLm::kFirstByte + static_cast<uint8_t>(byte), label);
    return *this;
  }
  Expected& id(int32_t token, bool label) {
    sequence.ids.push_back(token);
    sequence.supervised.push_back(label);
    return *this;
  }
  Sequence sequence;
};

double wrong_samples(RungContext& context, const std::string& lines, const std::string& loss_on,
                     const std::vector<Expected>& expected) {
  const std::filesystem::path path = context.directory() / "data.jsonl";
  write_file(path, lines);
  const auto tokenizer = Tokenizer::make(tokenizer_spec_from_gguf(lm(context).decoder().file()));
  DatasetOptions options;
  options.loss_on = parse_loss_on(loss_on);
  const Dataset data = load_dataset(path, *tokenizer, options);
  if (data.sequences.size() != expected.size()) return static_cast<double>(expected.size());
  double wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    wrong += data.sequences[i].ids == expected[i].sequence.ids &&
                     data.sequences[i].supervised == expected[i].sequence.supervised
                 ? 0
                 : 1;
  return wrong;
}

double wrong_masks(RungContext& context) {
  constexpr int32_t kBegin = SyntheticLm::kTurnBegin, kEnd = SyntheticLm::kTurnEnd;
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yo."}]})"
      "\n";
  const auto conversation = [&](bool rest, bool answer) {
    Expected sample;
    sample.id(kBegin, false).text("user\nHi?", rest).id(kEnd, rest).text("\n", rest);
    sample.id(kBegin, rest).text("assistant\n", rest).text("Yo.", answer).id(kEnd, answer).text("\n", rest);
    return sample;
  };
  double wrong = wrong_samples(context, chat, "assistant", {conversation(false, true)});
  wrong += wrong_samples(context, chat, "all", {conversation(true, true)});
  wrong += wrong_samples(context,
                         R"({"prompt": "2+2=", "completion": "4"})"
                         "\n",
                         "assistant", {Expected().text("2+2=", false).text("4", true).id(kEnd, true)});
  wrong += wrong_samples(context,
                         R"({"text": "a##b##c"})"
                         "\n",
                         "after:##", {Expected().text("a##", false).text("b##c", true)});
  return wrong;
}

// Micro-batches: sequences end to end, each cut behind the row of its last label; positions begin again.
double wrong_rows(RungContext& context) {
  const std::vector<Sequence> sequences = {random_sequence(6, 2, 50), random_sequence(4, 9, 51),
                                           random_sequence(9, 5, 52)};
  std::vector<Sequence> cut = sequences;
  cut[0].supervised[5] = false;  // its last label is token 4
  MicroBatch batch;
  context.parts.fill(batch, cut, std::vector<size_t>{2, 1, 0});  // the second has no label and gives nothing
  std::vector<int32_t> tokens, positions, rows, labels;
  for (const auto& [index, length] : {std::pair<size_t, size_t>{2, 8}, {0, 4}})
    for (size_t i = 0; i < length; ++i) {
      if (cut[index].supervised[i + 1] != 0) {
        rows.push_back(static_cast<int32_t>(tokens.size()));
        labels.push_back(cut[index].ids[i + 1]);
      }
      tokens.push_back(cut[index].ids[i]);
      positions.push_back(static_cast<int32_t>(i));
    }
  const auto wrong = [](const std::vector<int32_t>& got, const std::vector<int32_t>& expected) {
    return got == expected ? 0.0 : 1.0;
  };
  return wrong(batch.tokens, tokens) + wrong(batch.positions, positions) + wrong(batch.rows, rows) +
         wrong(batch.labels, labels) + wrong(batch.offsets, {0, 8, 12}) + wrong(batch.first, {0, 0});
}

// The mask: hidden rows that a change of a later token, or of another sequence, moves.
double leaking_rows(RungContext& context) {
  constexpr size_t kFirst = 6, kSecond = 7, kChanged = kFirst + 3;
  constexpr int64_t kCount = kFirst + kSecond;
  const auto built = build_loss_graph(lm(context).decoder(), nullptr, {kCount, 2, kCount}, std::nullopt);
  Executor executor(built->graph, *context.parts.backend, context.pool);
  std::vector<int32_t> tokens = random_sequence(kCount, 0, 60).ids, positions, offsets = {0, kFirst, kCount},
                       first = {0, 0}, rows = {0}, labels = {7};
  for (size_t i = 0; i < kCount; ++i) positions.push_back(static_cast<int32_t>(i < kFirst ? i : i - kFirst));
  executor.bind(built->tokens, tokens.data());
  executor.bind(built->positions, positions.data());
  executor.bind(built->offsets, offsets.data());
  executor.bind(built->first, first.data());
  executor.bind(built->supervised.at(0).rows, rows.data());
  executor.bind(built->supervised.at(0).labels, labels.data());
  const auto hidden = [&] {
    Trace trace;
    run_traced(executor, built->sizes(kCount, 2, 1), traced_places(), "supervised", trace);
    return trace.at("output_norm");
  };
  const Numbers before = hidden();
  tokens[kChanged] = (tokens[kChanged] + 1) % static_cast<int32_t>(SyntheticLm::kVocabulary);
  const Numbers after = hidden();
  const size_t width = before.size() / kCount;
  double wrong = 0;
  for (size_t row = 0; row < kCount; ++row) {
    const bool moved = !std::equal(before.begin() + static_cast<int64_t>(row * width),
                                   before.begin() + static_cast<int64_t>((row + 1) * width),
                                   after.begin() + static_cast<int64_t>(row * width));
    wrong += moved == (row >= kChanged) ? 0 : 1;
  }
  return wrong;
}

Measured measure_layout(RungContext& context) {
  return {wrong_masks(context) + wrong_rows(context), leaking_rows(context)};
}

// --- LM3, LM4: cross-entropy ---

// Hidden rows, some of them so large that naive exponentials overflow, and a head of more than one panel.
struct Head {
  static constexpr int64_t kRows = 29, kWidth = 256, kVocabulary = 1100;
  explicit Head(RungContext& context)
      : stored(synthetic_weight(context.dtype, kVocabulary, kWidth, 5, context.pool)),
        weight(dense(stored.data(), context.dtype, {kVocabulary, kWidth})) {
    const Numbers normals = random_normals(kRows * kWidth, 6);
    for (size_t i = 0; i < normals.size(); ++i)
      h.push_back(static_cast<float>(normals[i] * (i / kWidth % 3 == 0 ? 60.0 : 1.0)));
    for (int64_t m = 0; m < kRows; ++m) labels.push_back(static_cast<int32_t>(m * 541 % kVocabulary));
  }
  std::vector<std::byte> stored;
  Tensor weight;
  std::vector<float> h;
  std::vector<int32_t> labels;
};

// The loss, then dh.
Numbers run_head(RungContext& context, Head& head, bool chunked) {
  Graph graph;
  const ValueId h = graph.input("h", DType::kF32, {Head::kRows, Head::kWidth}),
                labels = graph.input("labels", DType::kI32, {Head::kRows}), w = graph.frozen("W", head.weight);
  const ValueId loss =
      chunked ? head_loss(graph, h, w, labels, true, "head")
              : cross_entropy(graph, frozen_linear(graph, h, w, kNoValue, "logits"), labels, kNoValue, "head");
  graph.mark_output(loss);
  const Differentiation result = differentiate(graph, loss, {}, {h}, context.formulation);
  Executor executor(graph, *context.parts.backend, context.pool);
  float seed = 1;
  executor.bind(h, head.h.data());
  executor.bind(labels, head.labels.data());
  executor.bind(result.seed, &seed);
  executor.run({});
  Numbers numbers = {static_cast<double>(executor.tensor(loss).f32()[0])};
  const float* const dh = executor.tensor(result.gradient.at(h)).f32();
  numbers.insert(numbers.end(), dh, dh + Head::kRows * Head::kWidth);
  return numbers;
}

Numbers plain_head(const Head& head) {
  const Numbers w = decoded_matrix(head.weight);
  Numbers result(1 + static_cast<size_t>(Head::kRows * Head::kWidth));
  for (int64_t m = 0; m < Head::kRows; ++m) {
    Numbers logits;
    for (int64_t v = 0; v < Head::kVocabulary; ++v) {
      double sum = 0;
      for (int64_t i = 0; i < Head::kWidth; ++i)
        sum += static_cast<double>(head.h[static_cast<size_t>(m * Head::kWidth + i)]) *
               w[static_cast<size_t>(v * Head::kWidth + i)];
      logits.push_back(sum);
    }
    const double largest = *std::ranges::max_element(logits);
    double total = 0;
    for (const double logit : logits) total += std::exp(logit - largest);
    const size_t label = static_cast<size_t>(head.labels[static_cast<size_t>(m)]);
    result[0] += largest + std::log(total) - logits[label];
    for (size_t v = 0; v < logits.size(); ++v) {
      const double slope = std::exp(logits[v] - largest) / total - (v == label ? 1 : 0);
      for (size_t i = 0; i < Head::kWidth; ++i)
        result[1 + static_cast<size_t>(m) * Head::kWidth + i] += slope * w[v * Head::kWidth + i];
    }
  }
  return result;
}

Measured loss_and_gradient_errors(const Numbers& got, const Numbers& expected) {
  return {relative_error(got[0], expected[0]),
          relative_error(std::span(got).subspan(1), std::span(expected).subspan(1))};
}

Measured measure_cross_entropy(RungContext& context) {
  Head head(context);
  return loss_and_gradient_errors(run_head(context, head, true), plain_head(head));
}
Measured measure_chunked(RungContext& context) {
  Head head(context);
  return loss_and_gradient_errors(run_head(context, head, true), run_head(context, head, false));
}

// --- LM6: recompute of layers and of portions of the head ---

Measured measure_recomputed_bits(RungContext& context) {
  const std::vector<Sequence> sequences = {random_sequence(140, 1, 70)};  // more than a portion of labels
  const std::vector<size_t> which = {0};
  MicroBatch batch;
  context.parts.fill(batch, sequences, which);
  double wrong = 0;
  for (const TriedAdapter* const tried : {&lora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, context.model().sites(), *tried);
    const auto run = [&](int segments) {
      LossRunner runner(lm(context).decoder(), adapter.get(), loss_limits(sequences, 512),
                        GradientOptions{context.formulation, segments}, *context.parts.backend, context.pool);
      std::ranges::fill(adapter->parameters().gradients(), 0.0f);
      runner.begin_step(0);
      Numbers numbers = {runner.run(batch, Trial::kScale)};
      const std::span<const float> gradients = adapter->parameters().gradients();
      numbers.insert(numbers.end(), gradients.begin(), gradients.end());
      return numbers;
    };
    wrong += differences(run(SyntheticLm::kLayers), run(1));
  }
  return {wrong};
}

}  // namespace

Rungs lm_rungs() {
  constexpr auto kTypes = Repeats::kByType;
  static const std::vector<Rung> rungs = {
      {"T3", "training forward = inference forward, each named value", kTypes, {at_most(1e-4)}, measure_inference},
      {"LM1",
       "samples to tokens, labels, rows: mistakes; rows that see what they must not",
       Repeats::kOnce,
       {exactly_zero("mistakes"), exactly_zero("leaks")},
       measure_layout},
      {"LM3",
       "cross-entropy of the head = plain, in double precision",
       kTypes,
       {at_most(1e-5, "loss"), at_most(1e-5, "gradient")},
       measure_cross_entropy},
      {"LM4",
       "cross-entropy in chunks of the vocabulary = of whole logits",
       kTypes,
       {at_most(1e-5, "loss"), at_most(1e-5, "gradient")},
       measure_chunked},
      {"LM6",
       "recompute of layers and head = plain, to the bit: numbers that differ",
       Repeats::kByFormulation,
       {exactly_zero()},
       measure_recomputed_bits},
  };
  return rungs;
}

}  // namespace patina
