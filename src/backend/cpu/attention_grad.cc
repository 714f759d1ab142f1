#include "backend/cpu/attention_tasks.h"
#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_grad.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/attention_tiles-inl.h"
#include "backend/cpu/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// delta [H][Tq] = sum over c of do * o, the gradient that normalising takes off.
void delta_row(const AttentionSpec& spec, const AttentionGradRows& rows, int64_t row, float* delta, int64_t stride) {
  for (int64_t head = 0; head < spec.heads; ++head)
    delta[head * stride + row] = sum16(spec.width, [&](FloatVector sum, auto at) HWY_ATTR {
      return hn::MulAdd(at.load(rows.dy.row(row) + head * spec.width), at.load(rows.o.row(row) + head * spec.width),
                        sum);
    });
}

// Queries along the lanes, keys walked.
void grad_queries(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t head,
                  const AttentionGradRows& rows, const float* delta, int64_t delta_stride, float* scratch) {
  constexpr Floats d;
  const int64_t width = spec.width, kv_column = head / (spec.heads / spec.kv_heads) * width;
  const int64_t count = tile.rows.end - tile.rows.begin;
  const int64_t row = tile.sequence.rows.begin + tile.rows.begin;
  float *query = scratch, *dy = query + width * kLaneRows, *dq = dy + width * kLaneRows;
  float *scores = dq + width * kLaneRows, *dp = scores + kWalkRows * kLaneRows;
  pack_transposed(rows.q.row(row) + head * width, rows.q.stride, count, width, spec.scale, query);
  pack_transposed(rows.dy.row(row) + head * width, rows.dy.stride, count, width, 1.0f, dy);
  std::fill(dq, dq + width * kLaneRows, 0.0f);
  float lse[kLaneRows] = {}, deltas[kLaneRows] = {};
  for (int64_t i = 0; i < count; ++i) {
    lse[i] = rows.lse.row(row + i)[head];
    deltas[i] = delta[head * delta_stride + row + i];
  }
  const LaneKeys keys(tile.sequence, tile.rows);
  for (int64_t key = keys.any.begin; key < keys.any.end; key += kWalkRows) {
    const int64_t walked = std::min(kWalkRows, keys.any.end - key), kv_row = tile.sequence.kv_rows.begin + key;
    const float *k = rows.k.row(kv_row) + kv_column, *v = rows.v.row(kv_row) + kv_column;
    const Blocks blocks = keys.blocks(key, walked);
    product<Walk::kRows>(blocks, k, rows.k.stride, query, width, scores);
    product<Walk::kRows>(blocks, v, rows.v.stride, dy, width, dp);
    for (const Blocks::Block& block : blocks)
      for (int64_t j = block.rows.begin; j < block.rows.end; ++j)
        for (int64_t lane = block.lanes.begin; lane < block.lanes.end; lane += kLanes) {
          float* score = scores + j * kLaneRows + lane;
          const FloatVector p = exp(d, hn::Sub(hn::LoadU(d, score), hn::LoadU(d, lse + lane)));
          FloatVector ds = hn::Mul(p, hn::Sub(hn::LoadU(d, dp + j * kLaneRows + lane), hn::LoadU(d, deltas + lane)));
          if (blocks.masked) ds = hn::IfThenElseZero(keys.see(lane, key + j), ds);
          hn::StoreU(ds, d, score);
        }
    product<Walk::kColumns>(blocks, k, rows.k.stride, scores, width, dq);
  }
  float factor[kLaneRows];
  std::fill(factor, factor + count, spec.scale);
  unpack_transposed(dq, factor, count, width, rows.dq.row(row) + head * width, rows.dq.stride);
}

// Keys along the lanes; the queries of every head that reads them are walked in order.
void grad_keys(const AttentionSpec& spec, const AttentionSequences::Tile& tile, int64_t kv_head,
               const AttentionGradRows& rows, const float* delta, int64_t delta_stride, float* scratch) {
  constexpr Floats d;
  constexpr Ints ints;
  const AttentionSequence& sequence = tile.sequence;
  const int64_t width = spec.width, group = spec.heads / spec.kv_heads;
  const int64_t count = tile.rows.end - tile.rows.begin;
  const int64_t kv_row = sequence.kv_rows.begin + tile.rows.begin;
  float *key = scratch, *value = key + width * kLaneRows, *dk = value + width * kLaneRows, *dv = dk + width * kLaneRows;
  float *scores = dv + width * kLaneRows, *dp = scores + kWalkRows * kLaneRows;
  pack_transposed(rows.k.row(kv_row) + kv_head * width, rows.k.stride, count, width, spec.scale, key);
  pack_transposed(rows.v.row(kv_row) + kv_head * width, rows.v.stride, count, width, 1.0f, value);
  std::fill(dk, dk + 2 * width * kLaneRows, 0.0f);
  const Range queries = sequence.queries_of(tile.rows);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t begin = queries.begin; begin < queries.end; begin += kWalkRows) {
      const int64_t walked = std::min(kWalkRows, queries.end - begin), row = sequence.rows.begin + begin;
      const float *q = rows.q.row(row) + head * width, *dy = rows.dy.row(row) + head * width;
      const Range last = sequence.keys_of(begin + walked - 1), front = sequence.keys_of(begin);
      const bool masked = last.begin > tile.rows.begin || front.end < tile.rows.end;
      const Blocks blocks(walked, count, masked, [&](const Range& some) {
        return Range{sequence.keys_of(begin + some.begin).begin - tile.rows.begin,
                     sequence.keys_of(begin + some.end - 1).end - tile.rows.begin};
      });
      product<Walk::kRows>(blocks, q, rows.q.stride, key, width, scores);
      product<Walk::kRows>(blocks, dy, rows.dy.stride, value, width, dp);
      for (const Blocks::Block& block : blocks)
        for (int64_t i = block.rows.begin; i < block.rows.end; ++i) {
          const FloatVector lse = hn::Set(d, rows.lse.row(row + i)[head]);
          const FloatVector deltas = hn::Set(d, delta[head * delta_stride + row + i]);
          const Range seen = sequence.keys_of(begin + i);
          const IntVector first = hn::Set(ints, static_cast<int32_t>(seen.begin));
          const IntVector end = hn::Set(ints, static_cast<int32_t>(seen.end));
          for (int64_t lane = block.lanes.begin; lane < block.lanes.end; lane += kLanes) {
            float *score = scores + i * kLaneRows + lane, *dp_lane = dp + i * kLaneRows + lane;
            FloatVector p = exp(d, hn::Sub(hn::LoadU(d, score), lse));
            FloatVector ds = hn::Mul(p, hn::Sub(hn::LoadU(d, dp_lane), deltas));
            if (masked) {
              const IntVector keys = hn::Iota(ints, static_cast<int32_t>(tile.rows.begin + lane));
              const auto sees = hn::RebindMask(d, hn::And(hn::Not(hn::Lt(keys, first)), hn::Lt(keys, end)));
              p = hn::IfThenElseZero(sees, p);
              ds = hn::IfThenElseZero(sees, ds);
            }
            hn::StoreU(p, d, score);
            hn::StoreU(ds, d, dp_lane);
          }
        }
      product<Walk::kColumns>(blocks, dy, rows.dy.stride, scores, width, dv);
      product<Walk::kColumns>(blocks, q, rows.q.stride, dp, width, dk);
    }
  float factor[kLaneRows];
  std::fill(factor, factor + count, spec.scale);
  unpack_transposed(dk, factor, count, width, rows.dk.row(kv_row) + kv_head * width, rows.dk.stride);
  std::fill(factor, factor + count, 1.0f);
  unpack_transposed(dv, factor, count, width, rows.dv.row(kv_row) + kv_head * width, rows.dv.stride);
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(delta_row);
HWY_EXPORT(grad_queries);
HWY_EXPORT(grad_keys);

int64_t worker_floats(const AttentionSpec& spec) { return (4 * spec.width + 2 * kWalkRows) * kLaneRows; }

// A cache may hold more rows than its sequences use.
void clear_rows(const Tensor& tensor, const Range& range) {
  for (int64_t r = range.begin; r < range.end; ++r) std::fill_n(Rows(tensor).row(r), tensor.shape[1], 0.0f);
}

}  // namespace

int64_t attention_grad_scratch_bytes(const Op& op, std::span<const Tensor> in, std::span<const Tensor>, int threads) {
  const AttentionSpec& spec = static_cast<const AttentionGrad&>(op).spec;
  return (threads * worker_floats(spec) + in[0].shape[0] * spec.heads) * int64_t{sizeof(float)};
}

void attention_grad(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const AttentionSpec& spec = static_cast<const AttentionGrad&>(op).spec;
  const AttentionGradRows rows{{Rows(in[0]), Rows(in[1]), Rows(in[2]), Rows(in[6]), Rows(in[7])},
                               Rows(in[8]),
                               Rows(out[0]),
                               Rows(out[1]),
                               Rows(out[2])};
  const AttentionSequences sequences(spec, in);
  float* scratch = reinterpret_cast<float*>(context.scratch.data());
  float* delta = scratch + context.pool.size() * worker_floats(spec);
  for (const Tensor& tensor : {out[1], out[2]}) {
    clear_rows(tensor, {0, sequences.kv_rows().begin});
    clear_rows(tensor, {sequences.kv_rows().end, tensor.shape[0]});
  }
  const auto run_delta = HWY_DYNAMIC_DISPATCH(delta_row);
  constexpr int64_t kRows = 16;
  context.pool.run((rows.q.rows + kRows - 1) / kRows, [&](int64_t task, int) {
    for (int64_t row = task * kRows; row < std::min(rows.q.rows, (task + 1) * kRows); ++row)
      run_delta(spec, rows, row, delta, rows.q.rows);
  });
  // The long tasks go first: all heads of a group for the first keys, which most queries see.
  const auto run_keys = HWY_DYNAMIC_DISPATCH(grad_keys);
  const auto run_queries = HWY_DYNAMIC_DISPATCH(grad_queries);
  const int64_t key_tasks = sequences.key_tiles() * spec.kv_heads, query_tiles = sequences.query_tiles();
  context.pool.run(key_tasks + query_tiles * spec.heads, [&](int64_t task, int worker) {
    float* own = scratch + worker * worker_floats(spec);
    if (task < key_tasks) {
      run_keys(spec, sequences.key_tile(task / spec.kv_heads), task % spec.kv_heads, rows, delta, rows.q.rows, own);
    } else {
      task -= key_tasks;
      run_queries(spec, sequences.query_tile(query_tiles - 1 - task / spec.heads), task % spec.heads, rows, delta,
                  rows.q.rows, own);
    }
  });
}

}  // namespace patina::cpu
#endif
