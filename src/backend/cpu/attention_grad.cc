#include "backend/cpu/attention.h"

#include <array>

#include "backend/cpu/attention_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_grad.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/attention_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

// rows: q, k, v, o, lse, do, dq, dk, dv. delta [H][Tq] = sum over c of do * o, the gradient that normalising takes off.
void delta_row(const AttentionSpec& spec, std::span<const Rows> rows, int64_t row, float* delta, int64_t stride) {
  for (int64_t head = 0; head < spec.heads; ++head)
    delta[head * stride + row] =
        dot16(rows[5].at(row, head * spec.width), rows[3].at(row, head * spec.width), spec.width);
}

// Queries along the lanes, keys walked.
void grad_queries(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t head,
                  std::span<const Rows> rows, const float* delta, int64_t delta_stride, float* scratch) {
  constexpr FloatTag d;
  const int64_t width = spec.width, kv_column = head / (spec.heads / spec.kv_heads) * width;
  const int64_t count = tile.rows.end - tile.rows.begin, lanes = used_lanes(count);
  const int64_t row = tile.sequence.rows.begin + tile.rows.begin;
  float *query = scratch, *dy = query + width * kLaneRows, *dq = dy + width * kLaneRows;
  float *scores = dq + width * kLaneRows, *dp = scores + kWalkRows * kLaneRows;
  pack_transposed(rows[0].at(row, head * width), rows[0].stride, count, width, spec.scale, query);
  pack_transposed(rows[5].at(row, head * width), rows[5].stride, count, width, 1.0f, dy);
  std::fill(dq, dq + width * kLaneRows, 0.0f);
  float lse[kLaneRows] = {}, deltas[kLaneRows] = {};
  for (int64_t i = 0; i < count; ++i) {
    lse[i] = *rows[4].at(row + i, head);
    deltas[i] = delta[head * delta_stride + row + i];
  }
  const LaneKeys keys(tile.sequence, tile.rows);
  for (int64_t key = keys.any.begin; key < keys.any.end; key += kWalkRows) {
    const int64_t walked = std::min(kWalkRows, keys.any.end - key), kv_row = tile.sequence.kv_rows.begin + key;
    const bool masked = !keys.all_see({key, key + walked});
    product<Walk::kRows>(rows[1].at(kv_row, kv_column), rows[1].stride, query, walked, width, lanes, scores);
    product<Walk::kRows>(rows[2].at(kv_row, kv_column), rows[2].stride, dy, walked, width, lanes, dp);
    for (int64_t j = 0; j < walked; ++j)
      for (int64_t lane = 0; lane < lanes; lane += hn::MaxLanes(d)) {
        float* score = scores + j * kLaneRows + lane;
        const FloatVector p = vector_exp(hn::Sub(hn::LoadU(d, score), hn::LoadU(d, lse + lane)));
        FloatVector ds = hn::Mul(p, hn::Sub(hn::LoadU(d, dp + j * kLaneRows + lane), hn::LoadU(d, deltas + lane)));
        if (masked) ds = hn::IfThenElseZero(keys.see(lane, key + j), ds);
        hn::StoreU(ds, d, score);
      }
    product<Walk::kColumns>(rows[1].at(kv_row, kv_column), rows[1].stride, scores, width, walked, lanes, dq);
  }
  float factor[kLaneRows];
  std::fill(factor, factor + count, spec.scale);
  unpack_transposed(dq, factor, count, width, rows[6].at(row, head * width), rows[6].stride);
}

// Keys along the lanes; the queries of every head that reads them are walked in order.
void grad_keys(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t kv_head,
               std::span<const Rows> rows, const float* delta, int64_t delta_stride, float* scratch) {
  constexpr FloatTag d;
  constexpr IntTag ints;
  const AttentionSequence& sequence = tile.sequence;
  const int64_t width = spec.width, group = spec.heads / spec.kv_heads;
  const int64_t count = tile.rows.end - tile.rows.begin, lanes = used_lanes(count);
  const int64_t kv_row = sequence.kv_rows.begin + tile.rows.begin;
  float *key = scratch, *value = key + width * kLaneRows, *dk = value + width * kLaneRows, *dv = dk + width * kLaneRows;
  float *scores = dv + width * kLaneRows, *dp = scores + kWalkRows * kLaneRows;
  pack_transposed(rows[1].at(kv_row, kv_head * width), rows[1].stride, count, width, spec.scale, key);
  pack_transposed(rows[2].at(kv_row, kv_head * width), rows[2].stride, count, width, 1.0f, value);
  std::fill(dk, dk + 2 * width * kLaneRows, 0.0f);
  const Range queries = sequence.queries_of(tile.rows);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t begin = queries.begin; begin < queries.end; begin += kWalkRows) {
      const int64_t walked = std::min(kWalkRows, queries.end - begin), row = sequence.rows.begin + begin;
      const float *q = rows[0].at(row, head * width), *dy = rows[5].at(row, head * width);
      product<Walk::kRows>(q, rows[0].stride, key, walked, width, lanes, scores);
      product<Walk::kRows>(dy, rows[5].stride, value, walked, width, lanes, dp);
      for (int64_t i = 0; i < walked; ++i) {
        const FloatVector lse = hn::Set(d, *rows[4].at(row + i, head));
        const FloatVector deltas = hn::Set(d, delta[head * delta_stride + row + i]);
        const Range seen = sequence.keys_of(begin + i);
        const bool masked = seen.begin > tile.rows.begin || seen.end < tile.rows.end;
        const IntVector first = hn::Set(ints, static_cast<int32_t>(seen.begin));
        const IntVector end = hn::Set(ints, static_cast<int32_t>(seen.end));
        for (int64_t lane = 0; lane < lanes; lane += hn::MaxLanes(d)) {
          float *score = scores + i * kLaneRows + lane, *product_lane = dp + i * kLaneRows + lane;
          FloatVector p = vector_exp(hn::Sub(hn::LoadU(d, score), lse));
          FloatVector ds = hn::Mul(p, hn::Sub(hn::LoadU(d, product_lane), deltas));
          if (masked) {
            const IntVector keys = hn::Iota(ints, static_cast<int32_t>(tile.rows.begin + lane));
            const auto sees = hn::RebindMask(d, hn::And(hn::Not(hn::Lt(keys, first)), hn::Lt(keys, end)));
            p = hn::IfThenElseZero(sees, p);
            ds = hn::IfThenElseZero(sees, ds);
          }
          hn::StoreU(p, d, score);
          hn::StoreU(ds, d, product_lane);
        }
      }
      product<Walk::kColumns>(dy, rows[5].stride, scores, width, walked, lanes, dv);
      product<Walk::kColumns>(q, rows[0].stride, dp, width, walked, lanes, dk);
    }
  float factor[kLaneRows];
  std::fill(factor, factor + count, spec.scale);
  unpack_transposed(dk, factor, count, width, rows[7].at(kv_row, kv_head * width), rows[7].stride);
  std::fill(factor, factor + count, 1.0f);
  unpack_transposed(dv, factor, count, width, rows[8].at(kv_row, kv_head * width), rows[8].stride);
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina {

HWY_EXPORT(delta_row);
HWY_EXPORT(grad_queries);
HWY_EXPORT(grad_keys);

namespace {

int64_t worker_floats(const AttentionSpec& spec) { return (4 * spec.width + 2 * kWalkRows) * kLaneRows; }

// A cache may hold more rows than its sequences use.
void clear_rows(const Tensor& tensor, const Range& range) {
  for (int64_t r = range.begin; r < range.end; ++r) std::fill_n(Rows(tensor).at(r, 0), tensor.shape[1], 0.0f);
}

}  // namespace

int64_t attention_grad_scratch_bytes(const Op& op, std::span<const Tensor> in, std::span<const Tensor>, int threads) {
  const AttentionSpec& spec = static_cast<const AttentionGrad&>(op).spec;
  return (threads * worker_floats(spec) + in[0].shape[0] * spec.heads) * int64_t{sizeof(float)};
}

void attention_grad(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const AttentionSpec& spec = static_cast<const AttentionGrad&>(op).spec;
  const std::array rows{Rows(in[0]), Rows(in[1]),  Rows(in[2]),  Rows(in[6]), Rows(in[7]),
                        Rows(in[8]), Rows(out[0]), Rows(out[1]), Rows(out[2])};
  const AttentionSequences sequences(spec, in);
  float* scratch = reinterpret_cast<float*>(context.scratch.data());
  const int64_t queries = in[0].shape[0];
  float* delta = scratch + context.pool.size() * worker_floats(spec);
  for (const Tensor& tensor : {out[1], out[2]}) {
    clear_rows(tensor, {0, sequences.kv_rows().begin});
    clear_rows(tensor, {sequences.kv_rows().end, tensor.shape[0]});
  }
  const auto run_delta = HWY_DYNAMIC_DISPATCH(delta_row);
  constexpr int64_t kRows = 16;
  context.pool.run((queries + kRows - 1) / kRows, [&](int64_t task, int) {
    for (int64_t row = task * kRows; row < std::min(queries, (task + 1) * kRows); ++row)
      run_delta(spec, rows, row, delta, queries);
  });
  // The long tasks go first: all heads of a group for the first keys, which most queries see.
  const auto run_keys = HWY_DYNAMIC_DISPATCH(grad_keys);
  const auto run_queries = HWY_DYNAMIC_DISPATCH(grad_queries);
  const int64_t key_tasks = sequences.key_tiles() * spec.kv_heads, query_tiles = sequences.query_tiles();
  context.pool.run(key_tasks + query_tiles * spec.heads, [&](int64_t task, int worker) {
    float* own = scratch + worker * worker_floats(spec);
    if (task < key_tasks) {
      run_keys(spec, sequences.key_tile(task / spec.kv_heads), task % spec.kv_heads, rows, delta, queries, own);
    } else {
      task -= key_tasks;
      run_queries(spec, sequences.query_tile(query_tiles - 1 - task / spec.heads), task % spec.heads, rows, delta,
                  queries, own);
    }
  });
}

}  // namespace patina
#endif
