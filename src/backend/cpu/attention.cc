#include "backend/cpu/attention.h"

#include <array>
#include <limits>

#include "backend/cpu/attention_tasks.h"
#include "base/scalar_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/attention_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The running softmax of up to kLaneRows queries.
struct LaneSoftmax {
  float maximum[kLaneRows], sum[kLaneRows], rescale[kLaneRows];

  // Turns the scores [count][lanes] of the keys from `key` on into probabilities relative to the new maximum;
  // `rescale` brings what was summed before to it.
  void add_tile(float* HWY_RESTRICT scores, int64_t key, int64_t count, int64_t lanes, const LaneKeys& keys) {
    constexpr FloatTag d;
    const bool masked = !keys.all_see({key, key + count});
    for (int64_t lane = 0; lane < lanes; lane += hn::MaxLanes(d)) {
      float* HWY_RESTRICT column = scores + lane;
      const FloatVector before = hn::LoadU(d, maximum + lane);
      FloatVector top = before;
      for (int64_t j = 0; j < count; ++j) {
        FloatVector score = hn::LoadU(d, column + j * kLaneRows);
        if (masked) {
          score = hn::IfThenElse(keys.see(lane, key + j), score, hn::Set(d, kNothing));
          hn::StoreU(score, d, column + j * kLaneRows);
        }
        top = hn::Max(top, score);
      }
      // Where nothing is visible yet any finite number does: exp(-inf - 0) = 0.
      const FloatVector base = hn::IfThenElse(hn::Eq(top, hn::Set(d, kNothing)), hn::Zero(d), top);
      FloatVector total = hn::Zero(d);
      for (int64_t j = 0; j < count; ++j) {
        const FloatVector p = vector_exp(hn::Sub(hn::LoadU(d, column + j * kLaneRows), base));
        hn::StoreU(p, d, column + j * kLaneRows);
        total = hn::Add(total, p);
      }
      const FloatVector factor = vector_exp(hn::Sub(before, base));
      hn::StoreU(factor, d, rescale + lane);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + lane), factor, total), d, sum + lane);
      hn::StoreU(top, d, maximum + lane);
    }
  }
};

void rescale_lanes(float* HWY_RESTRICT tile, const float* HWY_RESTRICT factor, int64_t rows, int64_t lanes) {
  constexpr FloatTag d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t lane = 0; lane < lanes; lane += hn::MaxLanes(d))
      hn::StoreU(hn::Mul(hn::LoadU(d, factor + lane), hn::LoadU(d, tile + r * kLaneRows + lane)), d,
                 tile + r * kLaneRows + lane);
}

// Queries along the lanes.
void attend_tile(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t head,
                 std::span<const Rows> rows, float* scratch) {
  const int64_t width = spec.width, kv_column = head / (spec.heads / spec.kv_heads) * width;
  const int64_t count = tile.rows.end - tile.rows.begin, lanes = used_lanes(count);
  const int64_t row = tile.sequence.rows.begin + tile.rows.begin;
  float *query = scratch, *value = query + width * kLaneRows, *scores = value + width * kLaneRows;
  pack_transposed(rows[0].at(row, head * width), rows[0].stride, count, width, spec.scale, query);
  std::fill(value, value + width * kLaneRows, 0.0f);
  LaneSoftmax softmax;
  std::fill(softmax.maximum, softmax.maximum + lanes, kNothing);
  std::fill(softmax.sum, softmax.sum + lanes, 0.0f);
  const LaneKeys keys(tile.sequence, tile.rows);
  for (int64_t key = keys.any.begin; key < keys.any.end; key += kWalkRows) {
    const int64_t walked = std::min(kWalkRows, keys.any.end - key), kv_row = tile.sequence.kv_rows.begin + key;
    product<Walk::kRows>(rows[1].at(kv_row, kv_column), rows[1].stride, query, walked, width, lanes, scores);
    softmax.add_tile(scores, key, walked, lanes, keys);
    rescale_lanes(value, softmax.rescale, width, lanes);
    product<Walk::kColumns>(rows[2].at(kv_row, kv_column), rows[2].stride, scores, width, walked, lanes, value);
  }
  float factor[kLaneRows];
  for (int64_t i = 0; i < count; ++i) {
    const float sum = softmax.sum[i];
    factor[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
    *rows[4].at(row + i, head) =
        sum == 0.0f ? kNothing : static_cast<float>(softmax.maximum[i] + exact_log(static_cast<double>(sum)));
  }
  unpack_transposed(value, factor, count, width, rows[3].at(row, head * width), rows[3].stride);
}

// One query: inner products straight from the cache. The width is a multiple of 16.
void attend_query(const AttentionSpec& spec, const AttentionSequence& sequence, int64_t i, int64_t head,
                  std::span<const Rows> rows, float* scratch) {
  constexpr FloatTag d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const int64_t width = spec.width, kv_column = head / (spec.heads / spec.kv_heads) * width;
  const int64_t row = sequence.rows.begin + i;
  const float* query = rows[0].at(row, head * width);
  float *value = rows[3].at(row, head * width), *scores = scratch;
  std::fill(value, value + width, 0.0f);
  float maximum = kNothing, sum = 0.0f;
  const Range keys = sequence.keys_of(i);
  for (int64_t key = keys.begin; key < keys.end; key += kWalkRows) {
    const int64_t walked = std::min(kWalkRows, keys.end - key), kv_row = sequence.kv_rows.begin + key;
    float top = maximum;
    for (int64_t j = 0; j < walked; ++j) {
      scores[j] = spec.scale * dot16(query, rows[1].at(kv_row + j, kv_column), width);
      if (!(scores[j] <= top)) top = scores[j];
    }
    std::fill(scores + walked, scores + used_lanes(walked), kNothing);
    float partial[16] = {};
    for (int64_t j = 0; j < walked; j += kLanes) {
      const FloatVector p = vector_exp(hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, top)));
      hn::StoreU(p, d, scores + j);
      float* lane = partial + j % 16;
      hn::StoreU(hn::Add(hn::LoadU(d, lane), p), d, lane);
    }
    float before[16];
    hn::StoreU(vector_exp(hn::Set(d, maximum - top)), d, before);
    sum = sum * before[0] + sum16(partial);
    for (int64_t c = 0; c < width; c += 16) {
      FloatVector part[16 / kLanes];
      for (int64_t n = 0; n < 16 / kLanes; ++n)
        part[n] = hn::Mul(hn::Set(d, before[0]), hn::LoadU(d, value + c + n * kLanes));
      for (int64_t j = 0; j < walked; ++j)
        for (int64_t n = 0; n < 16 / kLanes; ++n)
          part[n] = hn::MulAdd(hn::Set(d, scores[j]), hn::LoadU(d, rows[2].at(kv_row + j, kv_column + c) + n * kLanes),
                               part[n]);
      for (int64_t n = 0; n < 16 / kLanes; ++n) hn::StoreU(part[n], d, value + c + n * kLanes);
    }
    maximum = top;
  }
  *rows[4].at(row, head) = sum == 0.0f ? kNothing : static_cast<float>(maximum + exact_log(static_cast<double>(sum)));
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int64_t c = 0; c < width; ++c) value[c] *= factor;
}

void attention_task(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t head,
                    std::span<const Rows> rows, float* scratch) {
  if (tile.sequence.queries() >= kFewQueries || spec.width % 16 != 0) {
    attend_tile(spec, tile, head, rows, scratch);
    return;
  }
  for (int64_t i = tile.rows.begin; i < tile.rows.end; ++i) attend_query(spec, tile.sequence, i, head, rows, scratch);
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina {

HWY_EXPORT(attention_task);

namespace {
int64_t worker_floats(const AttentionSpec& spec) { return (2 * spec.width + kWalkRows) * kLaneRows; }
}  // namespace

int64_t attention_scratch_bytes(const Op& op, std::span<const Tensor>, std::span<const Tensor>, int threads) {
  return threads * worker_floats(static_cast<const Attention&>(op).spec) * int64_t{sizeof(float)};
}

void attention(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const AttentionSpec& spec = static_cast<const Attention&>(op).spec;
  const std::array rows{Rows(in[0]), Rows(in[1]), Rows(in[2]), Rows(out[0]), Rows(out[1])};
  const AttentionSequences sequences(spec, in);
  float* scratch = reinterpret_cast<float*>(context.scratch.data());
  const auto run = HWY_DYNAMIC_DISPATCH(attention_task);
  const int64_t tiles = sequences.query_tiles();
  // The last tiles of a causal sequence see the most keys: they go first.
  context.pool.run(tiles * spec.heads, [&](int64_t task, int worker) {
    run(spec, sequences.query_tile(tiles - 1 - task / spec.heads), task % spec.heads, rows,
        scratch + worker * worker_floats(spec));
  });
}

}  // namespace patina
#endif
