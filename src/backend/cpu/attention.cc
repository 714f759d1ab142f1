#include <limits>

#include "backend/cpu/attention_tasks.h"
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/attention_tiles-inl.h"
#include "backend/cpu/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The running softmax of up to kLaneRows queries.
struct LaneSoftmax {
  float maximum[kLaneRows], sum[kLaneRows], rescale[kLaneRows];

  // Turns the scores [rows][lanes] of the keys from `key` on into probabilities relative to the new maximum;
  // `rescale` brings what was summed before to it.
  void add_tile(float* HWY_RESTRICT scores, int64_t key, const Blocks& blocks, int64_t lanes, const LaneKeys& keys) {
    constexpr Floats d;
    for (int64_t lane = 0; lane < lanes; lane += kLanes) {
      float* HWY_RESTRICT column = scores + lane;
      const auto for_rows_of_lane = [&](auto body) HWY_ATTR {
        for (const Blocks::Block& block : blocks)
          if (block.lanes.begin <= lane && lane < block.lanes.end)
            for (int64_t j = block.rows.begin; j < block.rows.end; ++j) body(j);
      };
      const FloatVector before = hn::LoadU(d, maximum + lane);
      FloatVector top = before, total = hn::Zero(d);
      for_rows_of_lane([&](int64_t j) HWY_ATTR {
        FloatVector score = hn::LoadU(d, column + j * kLaneRows);
        if (blocks.masked) {
          score = hn::IfThenElse(keys.see(lane, key + j), score, hn::Set(d, kNothing));
          hn::StoreU(score, d, column + j * kLaneRows);
        }
        top = hn::Max(top, score);
      });
      // Where nothing is visible yet any finite number does: exp(-inf - 0) = 0.
      const FloatVector base = hn::IfThenElse(hn::Eq(top, hn::Set(d, kNothing)), hn::Zero(d), top);
      for_rows_of_lane([&](int64_t j) HWY_ATTR {
        const FloatVector p = exp(d, hn::Sub(hn::LoadU(d, column + j * kLaneRows), base));
        hn::StoreU(p, d, column + j * kLaneRows);
        total = hn::Add(total, p);
      });
      const FloatVector factor = exp(d, hn::Sub(before, base));
      hn::StoreU(factor, d, rescale + lane);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + lane), factor, total), d, sum + lane);
      hn::StoreU(top, d, maximum + lane);
    }
  }

  // Leaves 1 / sum in `rescale` (0 where no key was visible) and log sum exp of the scores in `maximum`.
  void finish(int64_t lanes) {
    constexpr Floats d;
    for (int64_t lane = 0; lane < lanes; lane += kLanes) {
      const FloatVector total = hn::LoadU(d, sum + lane);
      const FloatVector inverse = hn::Div(hn::Set(d, 1.0f), total);
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(total, hn::Zero(d)), inverse), d, rescale + lane);
      hn::StoreU(hn::Add(hn::LoadU(d, maximum + lane), log(d, total)), d, maximum + lane);
    }
  }
};

// scores[j] = scale * q . k[j], each in 16 partial sums and their tree (reduce-inl.h). Writes up to a multiple of 4.
void dot_rows(const float* q, const float* k, int64_t stride, int64_t rows, int64_t width, float scale, float* scores) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t j = 0; j < rows; ++j)
    scores[j] = scale * sum16(width, [&](FloatVector sum, auto at) {
                  return hn::MulAdd(at.load(q), at.load(k + j * stride), sum);
                });
#else
  constexpr Quads quads;
  for (int64_t j = 0; j < rows; j += 4) {
    const float* row[4];  // the last one stands in for rows that are not there
    for (int64_t r = 0; r < 4; ++r) row[r] = k + std::min(j + r, rows - 1) * stride;
    FloatVector sums[4][kPartialVectors];
    for (auto& of_row : sums)
      for (FloatVector& sum : of_row) sum = hn::Zero(Floats());
    for (int64_t c = 0; c < width; c += kPartials)
#pragma GCC unroll 4
      for (int64_t n = 0; n < kPartialVectors; ++n) {
        const FloatVector part = hn::LoadU(Floats(), q + c + n * kLanes);
#pragma GCC unroll 4
        for (int64_t r = 0; r < 4; ++r)
          sums[r][n] = hn::MulAdd(part, hn::LoadU(Floats(), row[r] + c + n * kLanes), sums[r][n]);
      }
    QuadVector four[4];
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t half = kPartialVectors / 2; half > 0; half /= 2)
        for (int64_t n = 0; n < half; ++n) sums[r][n] = hn::Add(sums[r][n], sums[r][n + half]);
      four[r] = fold_to_quad(Floats(), sums[r][0]);
    }
    transpose(four);
    const QuadVector sum = hn::Add(hn::Add(four[0], four[2]), hn::Add(four[1], four[3]));
    hn::StoreU(hn::Mul(hn::Set(quads, scale), sum), quads, scores + j);
  }
#endif
}

// out[c] = rescale * out[c] + sum over j of p[j] * v[j][c], in order.
template <int N>
HWY_INLINE void add_rows_block(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, int64_t rows,
                               float rescale, float* HWY_RESTRICT out) {
  constexpr Floats d;
  FloatVector sum[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) sum[n] = hn::Mul(hn::Set(d, rescale), hn::LoadU(d, out + n * kLanes));
  for (int64_t j = 0; j < rows; ++j)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      sum[n] = hn::MulAdd(hn::Set(d, p[j]), hn::LoadU(d, v + j * stride + n * kLanes), sum[n]);
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) hn::StoreU(sum[n], d, out + n * kLanes);
}
void add_rows(const float* p, const float* v, int64_t stride, int64_t rows, int64_t width, float rescale, float* out) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) add_rows_block<4>(p, v + c, stride, rows, rescale, out + c);
  for (; c < width; c += kLanes) add_rows_block<1>(p, v + c, stride, rows, rescale, out + c);
}

void rescale_lanes(float* HWY_RESTRICT tile, const float* HWY_RESTRICT factor, int64_t rows, int64_t lanes) {
  constexpr Floats d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t lane = 0; lane < lanes; lane += kLanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, factor + lane), hn::LoadU(d, tile + r * kLaneRows + lane)), d,
                 tile + r * kLaneRows + lane);
}

// Queries along the lanes.
void attend_tile(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t head,
                 const AttentionRows& rows, float* scratch) {
  const int64_t width = spec.width, kv_column = head / (spec.heads / spec.kv_heads) * width;
  const int64_t count = tile.rows.end - tile.rows.begin, lanes = used_lanes(count);
  const int64_t row = tile.sequence.rows.begin + tile.rows.begin;
  float *query = scratch, *value = query + width * kLaneRows, *scores = value + width * kLaneRows;
  pack_transposed(rows.q.row(row) + head * width, rows.q.stride, count, width, spec.scale, query);
  std::fill(value, value + width * kLaneRows, 0.0f);
  LaneSoftmax softmax;
  std::fill(softmax.maximum, softmax.maximum + lanes, kNothing);
  std::fill(softmax.sum, softmax.sum + lanes, 0.0f);
  const LaneKeys keys(tile.sequence, tile.rows);
  for (int64_t key = keys.any.begin; key < keys.any.end; key += kWalkRows) {
    const int64_t walked = std::min(kWalkRows, keys.any.end - key), kv_row = tile.sequence.kv_rows.begin + key;
    const Blocks blocks = keys.blocks(key, walked);
    product<Walk::kRows>(blocks, rows.k.row(kv_row) + kv_column, rows.k.stride, query, width, scores);
    softmax.add_tile(scores, key, blocks, lanes, keys);
    rescale_lanes(value, softmax.rescale, width, lanes);
    product<Walk::kColumns>(blocks, rows.v.row(kv_row) + kv_column, rows.v.stride, scores, width, value);
  }
  softmax.finish(lanes);
  for (int64_t i = 0; i < count; ++i) rows.lse.row(row + i)[head] = softmax.maximum[i];
  unpack_transposed(value, softmax.rescale, count, width, rows.o.row(row) + head * width, rows.o.stride);
}

// One query: inner products straight from the cache, 16 columns at a time. The width is a multiple of 16.
void attend_query(const AttentionSpec& spec, const AttentionSequence& sequence, int64_t i, int64_t head,
                  const AttentionRows& rows, float* scores) {
  constexpr Floats d;
  const int64_t width = spec.width, kv_column = head / (spec.heads / spec.kv_heads) * width;
  const int64_t row = sequence.rows.begin + i;
  float* value = rows.o.row(row) + head * width;
  std::fill(value, value + width, 0.0f);
  float maximum = kNothing, sum = 0.0f;
  const Range keys = sequence.keys_of(i);
  for (int64_t key = keys.begin; key < keys.end; key += kWalkRows) {
    const int64_t walked = std::min(kWalkRows, keys.end - key), kv_row = sequence.kv_rows.begin + key;
    dot_rows(rows.q.row(row) + head * width, rows.k.row(kv_row) + kv_column, rows.k.stride, walked, width, spec.scale,
             scores);
    const float before = maximum;
    std::fill(scores + walked, scores + used_lanes(walked), kNothing);
    FloatVector top = hn::Set(d, before);
    for (int64_t j = 0; j < walked; j += kLanes) top = hn::Max(top, hn::LoadU(d, scores + j));
    maximum = hn::GetLane(hn::MaxOfLanes(d, top));
    float partials[kPartials] = {};
    for (int64_t j = 0; j < walked; j += kLanes) {
      const FloatVector p = exp(d, hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, maximum)));
      hn::StoreU(p, d, scores + j);
      float* lane = partials + j % kPartials;
      hn::StoreU(hn::Add(hn::LoadU(d, lane), p), d, lane);
    }
    const float rescale = hn::GetLane(exp(d, hn::Set(d, before - maximum)));
    sum = sum * rescale + tree_sum(partials);
    add_rows(scores, rows.v.row(kv_row) + kv_column, rows.v.stride, walked, width, rescale, value);
  }
  rows.lse.row(row)[head] = maximum + hn::GetLane(log(d, hn::Set(d, sum)));
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int64_t c = 0; c < width; ++c) value[c] *= factor;
}

void attention_task(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t head,
                    const AttentionRows& rows, float* scratch) {
  if (tile.sequence.queries() >= kFewQueries || spec.width % 16 != 0) {
    attend_tile(spec, tile, head, rows, scratch);
    return;
  }
  for (int64_t i = tile.rows.begin; i < tile.rows.end; ++i) attend_query(spec, tile.sequence, i, head, rows, scratch);
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(attention_task);

int64_t worker_floats(const AttentionSpec& spec) { return (2 * spec.width + kWalkRows) * kLaneRows; }
}  // namespace

int64_t attention_scratch_bytes(const Op& op, std::span<const Tensor>, std::span<const Tensor>, int threads) {
  return threads * worker_floats(static_cast<const Attention&>(op).spec) * int64_t{sizeof(float)};
}

void attention(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const AttentionSpec& spec = static_cast<const Attention&>(op).spec;
  const AttentionRows rows{Rows(in[0]), Rows(in[1]), Rows(in[2]), Rows(out[0]), Rows(out[1])};
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

}  // namespace patina::cpu
#endif
