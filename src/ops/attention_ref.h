// Attention and its gradient as plain loops over whole rows of scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/attention.h"
#include "ops/reference.h"

namespace patina::reference {

inline bool attention_sees(const AttentionSpec& spec, int64_t position, int64_t key) {
  if (spec.mask == AttentionSpec::Mask::kCausal) return key <= position;
  return spec.mask == AttentionSpec::Mask::kNone || std::abs(position - key) <= spec.window;
}

// Scores of one query row against the keys [begin, end) of its sequence: scale * q . k, masked keys left out of `keys`.
template <typename S>
void attention_scores(const AttentionSpec& spec, const RefTensor<S>& q, const RefTensor<S>& k, int64_t row,
                      int64_t head, int64_t begin, int64_t end, int64_t position, std::vector<int64_t>& keys,
                      std::vector<S>& scores) {
  keys.clear();
  scores.clear();
  const int64_t kv_head = head / (spec.heads / spec.kv_heads), width = spec.width;
  for (int64_t key = begin; key < end; ++key) {
    if (!attention_sees(spec, position, key - begin)) continue;
    S sum(0);
    for (int64_t c = 0; c < width; ++c) sum += q.at(row, head * width + c) * k.at(key, kv_head * width + c);
    keys.push_back(key);
    scores.push_back(sum * S(spec.scale));
  }
}

template <typename S>
void attention(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const AttentionSpec& spec = static_cast<const Attention&>(op).spec;
  const RefTensor<S>&q = in[0], &k = in[1], &v = in[2], &o = out[0], &lse = out[1];
  const int32_t *q_offsets = in[3].ints, *kv_offsets = in[4].ints, *first = in[5].ints;
  const int64_t width = spec.width;
  std::vector<int64_t> keys;
  std::vector<S> p;
  for (int64_t b = 0; b + 1 < in[3].shape[0]; ++b)
    for (int64_t row = q_offsets[b]; row < q_offsets[b + 1]; ++row)
      for (int64_t head = 0; head < spec.heads; ++head) {
        const int64_t kv_head = head / (spec.heads / spec.kv_heads);
        attention_scores(spec, q, k, row, head, kv_offsets[b], kv_offsets[b + 1], first[b] + row - q_offsets[b], keys,
                         p);
        for (int64_t c = 0; c < width; ++c) o.at(row, head * width + c) = S(0);
        lse.at(row, head) = S(-std::numeric_limits<double>::infinity());
        if (keys.empty()) continue;
        const S top = *std::max_element(p.begin(), p.end(), [](S x, S y) { return std::real(x) < std::real(y); });
        S sum(0);
        for (S& value : p) sum += value = std::exp(value - top);
        lse.at(row, head) = top + std::log(sum);
        for (size_t j = 0; j < keys.size(); ++j)
          for (int64_t c = 0; c < width; ++c)
            o.at(row, head * width + c) += p[j] / sum * v.at(keys[j], kv_head * width + c);
      }
}

template <typename S>
void attention_grad(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const AttentionSpec& spec = static_cast<const AttentionGrad&>(op).spec;
  const RefTensor<S>&q = in[0], &k = in[1], &v = in[2], &o = in[6], &lse = in[7], &dy = in[8];
  const int32_t *q_offsets = in[3].ints, *kv_offsets = in[4].ints, *first = in[5].ints;
  const int64_t width = spec.width;
  for (const RefTensor<S>& gradient : out)
    for (int64_t r = 0; r < gradient.rows(); ++r)
      for (int64_t c = 0; c < gradient.columns(); ++c) gradient.at(r, c) = S(0);
  std::vector<int64_t> keys;
  std::vector<S> scores;
  for (int64_t b = 0; b + 1 < in[3].shape[0]; ++b)
    for (int64_t row = q_offsets[b]; row < q_offsets[b + 1]; ++row)
      for (int64_t head = 0; head < spec.heads; ++head) {
        const int64_t column = head * width, kv_column = head / (spec.heads / spec.kv_heads) * width;
        attention_scores(spec, q, k, row, head, kv_offsets[b], kv_offsets[b + 1], first[b] + row - q_offsets[b], keys,
                         scores);
        S delta(0);
        for (int64_t c = 0; c < width; ++c) delta += dy.at(row, column + c) * o.at(row, column + c);
        for (size_t j = 0; j < keys.size(); ++j) {
          const S p = std::exp(scores[j] - lse.at(row, head));
          S dp(0);
          for (int64_t c = 0; c < width; ++c) dp += dy.at(row, column + c) * v.at(keys[j], kv_column + c);
          const S ds = p * (dp - delta) * S(spec.scale);
          for (int64_t c = 0; c < width; ++c) {
            out[0].at(row, column + c) += ds * k.at(keys[j], kv_column + c);
            out[1].at(keys[j], kv_column + c) += ds * q.at(row, column + c);
            out[2].at(keys[j], kv_column + c) += p * dy.at(row, column + c);
          }
        }
      }
}

}  // namespace patina::reference
