// Attention by itself, in every mask that a model has.
#include "ops/attention.h"

#include <array>
#include <cmath>

#include "graph/executor.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "selftest/measures.h"
#include "selftest/tables.h"
#include "selftest/trial.h"

namespace patina {

namespace {

using Measured = std::vector<double>;
using Numbers = std::vector<double>;

using Mask = AttentionSpec::Mask;

// Two sequences end to end: queries, and the keys that they see: their own or, across, other ones.
struct AttentionCase {
  static constexpr int64_t kHeads = 4, kKvHeads = 2, kWidth = 32, kFirst = 97, kTokens = 150, kWindow = 16;

  AttentionCase(Mask seen, bool across) : mask(seen), first_keys(across ? 70 : kFirst), keys(across ? 81 : kTokens) {}
  bool visible(int64_t t, int64_t s) const {
    if ((t < kFirst) != (s < first_keys)) return false;
    if (mask == Mask::kCausal) return s <= t;
    return mask == Mask::kNone || std::abs(t - s) <= kWindow;
  }

  const Mask mask;
  const int64_t first_keys, keys;  // of the first sequence, and all
  const Numbers q = random_normals(kTokens * kHeads * kWidth, 1), k = random_normals(keys * kKvHeads * kWidth, 2),
                v = random_normals(keys * kKvHeads * kWidth, 3), dy = random_normals(kTokens * kHeads * kWidth, 4);
  static constexpr double scale() { return 0.1767766952966369; }  // 1 / sqrt(kWidth)
};

// o, dq, dk, dv of whole score matrices.
std::array<Numbers, 4> whole_attention(const AttentionCase& a) {
  constexpr int64_t kTokens = AttentionCase::kTokens, kHeads = AttentionCase::kHeads, kKv = AttentionCase::kKvHeads,
                    kWidth = AttentionCase::kWidth;
  std::array<Numbers, 4> result = {Numbers(a.q.size()), Numbers(a.q.size()), Numbers(a.k.size()), Numbers(a.v.size())};
  auto& [o, dq, dk, dv] = result;
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto q_at = [&](int64_t t) { return static_cast<size_t>((t * kHeads + h) * kWidth); };
    const auto k_at = [&](int64_t s) { return static_cast<size_t>((s * kKv + h / (kHeads / kKv)) * kWidth); };
    for (int64_t t = 0; t < kTokens; ++t) {
      Numbers p(static_cast<size_t>(a.keys)), dp(p.size());
      double total = 0, mean = 0;
      for (int64_t s = 0; s < a.keys; ++s) {
        if (!a.visible(t, s)) continue;
        double score = 0;
        for (size_t c = 0; c < kWidth; ++c) {
          score += a.q[q_at(t) + c] * a.k[k_at(s) + c];
          dp[static_cast<size_t>(s)] += a.dy[q_at(t) + c] * a.v[k_at(s) + c];
        }
        total += p[static_cast<size_t>(s)] = std::exp(AttentionCase::scale() * score);
      }
      for (int64_t s = 0; s < a.keys; ++s) mean += (p[static_cast<size_t>(s)] /= total) * dp[static_cast<size_t>(s)];
      for (int64_t s = 0; s < a.keys; ++s) {
        const double weight = p[static_cast<size_t>(s)];
        const double ds = AttentionCase::scale() * weight * (dp[static_cast<size_t>(s)] - mean);
        for (size_t c = 0; c < kWidth; ++c) {
          o[q_at(t) + c] += weight * a.v[k_at(s) + c];
          dv[k_at(s) + c] += weight * a.dy[q_at(t) + c];
          dq[q_at(t) + c] += ds * a.k[k_at(s) + c];
          dk[k_at(s) + c] += ds * a.q[q_at(t) + c];
        }
      }
    }
  }
  return result;
}

std::array<Numbers, 4> tiled_attention(RungContext& context, const AttentionCase& a) {
  constexpr int64_t kTokens = AttentionCase::kTokens, kQueries = AttentionCase::kHeads * AttentionCase::kWidth,
                    kKeys = AttentionCase::kKvHeads * AttentionCase::kWidth;
  const auto floats = [](const Numbers& numbers) { return std::vector<float>(numbers.begin(), numbers.end()); };
  std::vector<float> numbers[] = {floats(a.q), floats(a.k), floats(a.v), floats(a.dy)};
  std::vector<int32_t> offsets = {0, AttentionCase::kFirst, kTokens},
                       key_offsets = {0, static_cast<int32_t>(a.first_keys), static_cast<int32_t>(a.keys)},
                       first = {0, 0};
  Graph graph;
  const ValueId q = graph.input("q", DType::kF32, {kTokens, kQueries}),
                k = graph.input("k", DType::kF32, {a.keys, kKeys}), v = graph.input("v", DType::kF32, {a.keys, kKeys}),
                c = graph.input("c", DType::kF32, {1, kTokens * kQueries}),
                offsets_id = graph.input("offsets", DType::kI32, {3}),
                key_offsets_id = graph.input("key_offsets", DType::kI32, {3}),
                first_id = graph.input("first", DType::kI32, {2});
  const ValueId o = attention(graph, q, k, v, {offsets_id, key_offsets_id, first_id},
                              {.heads = AttentionCase::kHeads,
                               .kv_heads = AttentionCase::kKvHeads,
                               .width = AttentionCase::kWidth,
                               .mask = a.mask,
                               .window = AttentionCase::kWindow,
                               .scale = static_cast<float>(AttentionCase::scale())},
                              "attn");
  graph.mark_output(o);
  const ValueId flat = reshape(graph, o, {1, kTokens * kQueries}, "loss");
  const ValueId loss = reshape(graph, matmul(graph, flat, c, kNoValue, 1, true, "loss"), {1}, "loss");
  const Differentiation result = differentiate(graph, loss, {}, {q, k, v});
  Executor executor(graph, *context.parts.backend, context.pool);
  float seed = 1;
  const ValueId bound[] = {q, k, v, c};
  for (size_t i = 0; i < 4; ++i) executor.bind(bound[i], numbers[i].data());
  executor.bind(offsets_id, offsets.data());
  executor.bind(key_offsets_id, key_offsets.data());
  executor.bind(first_id, first.data());
  executor.bind(result.seed, &seed);
  executor.run({});
  const auto read = [&](ValueId id) {
    const Tensor tensor = executor.tensor(id);
    return as_doubles({tensor.f32(), static_cast<size_t>(tensor.shape.elements())});
  };
  return {read(o), read(result.gradient.at(q)), read(result.gradient.at(k)), read(result.gradient.at(v))};
}

Measured measure_attention(RungContext& context) {
  const AttentionCase cases[] = {
      {Mask::kCausal, false}, {Mask::kNone, false}, {Mask::kWindow, false}, {Mask::kNone, true}};
  Measured measured = {0, 0};
  for (const AttentionCase& one : cases) {
    const auto got = tiled_attention(context, one), expected = whole_attention(one);
    for (size_t i = 0; i < got.size(); ++i) {
      double& worst = measured[i == 0 ? 0 : 1];
      worst = larger(worst, relative_error(got[i], expected[i]));
    }
  }
  return measured;
}

}  // namespace

Rungs attention_rungs() {
  static const std::vector<Rung> rungs = {
      {"LM5",
       "attention in tiles = of whole score matrices, in double precision",
       Repeats::kOnce,
       {at_most(1e-5, "output"), at_most(1e-5, "gradients")},
       measure_attention},
  };
  return rungs;
}

}  // namespace patina
