#include "ops/head_loss.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/product.h"
#include "backend/cpu/rows.h"
#include "quant/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/head_loss.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/reduce-inl.h"
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// Takes the next logits of a row into its running softmax: they become exp(logit - maximum). Returns the factor that
// brings what was summed before to the new maximum.
float absorb_logits(float* logits, int64_t count, float* maximum, float* sum) {
  const Floats d;
  FloatVector greatest = hn::Set(d, *maximum);
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) greatest = hn::Max(greatest, hn::LoadU(d, logits + i));
  float next = hn::GetLane(hn::MaxOfLanes(d, greatest));
  for (int64_t i = whole; i < count; ++i) next = std::max(next, logits[i]);
  const FloatVector shift = hn::Set(d, next);
  for_vectors(count, [&](auto at) HWY_ATTR { at.store(exp(d, hn::Sub(at.load(logits), shift)), logits); });
  const float factor = hn::GetLane(exp(d, hn::Sub(hn::Set(d, *maximum), shift)));
  *maximum = next;
  *sum = *sum * factor +
         sum16(count, [&](FloatVector so_far, auto at) HWY_ATTR { return hn::Add(so_far, at.load(logits)); });
  return factor;
}

// row = row * factor - label, where label may be null.
void scale_subtract(float* row, int64_t count, float factor, const float* label) {
  const FloatVector by = hn::Set(Floats(), factor);
  if (label == nullptr)
    for_vectors(count, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(row), by), row); });
  else
    for_vectors(count, [&](auto at) HWY_ATTR { at.store(hn::MulSub(at.load(row), by, at.load(label)), row); });
}

float log_of(float x) { return hn::GetLane(log(Floats(), hn::Set(Floats(), x))); }

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

HWY_EXPORT(absorb_logits);
HWY_EXPORT(scale_subtract);
HWY_EXPORT(log_of);

namespace {

// Rows of W met at a time. Both products of a panel read and write their [M,...] side once, and the logits
// [M,kPanelRows] stay in the caches.
constexpr int64_t kPanelRows = 512;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The running softmax of every row, a panel of logits, a decoded row of W for each thread, and the products' own
// scratch.
struct Scratch {
  Scratch(std::byte* memory, int64_t rows, int64_t vocabulary, int64_t width, int threads)
      : maxima(take(memory, rows)),
        sums(take(memory, rows)),
        label_logits(take(memory, rows)),
        logits(take(memory, rows * std::min(kPanelRows, vocabulary))),
        decoded(take(memory, threads * width)),
        product_bytes(std::max(product_scratch_bytes(std::min(kPanelRows, vocabulary), width, threads),
                               product_scratch_bytes(width, std::min(kPanelRows, vocabulary), threads))),
        product(memory, static_cast<size_t>(product_bytes)) {}

  int64_t bytes(const std::byte* memory) const { return product.data() - memory + product_bytes; }
  static float* take(std::byte*& memory, int64_t floats) {
    float* const taken = reinterpret_cast<float*>(memory);
    memory += aligned(floats * static_cast<int64_t>(sizeof(float)));
    return taken;
  }

  float *maxima, *sums, *label_logits, *logits, *decoded;
  int64_t product_bytes;
  std::span<std::byte> product;
};

}  // namespace

int64_t head_loss_scratch(const Op&, std::span<const Tensor> in, std::span<const Tensor>, int threads) {
  alignas(64) static std::byte origin[64];
  return Scratch(origin, in[0].shape[0], in[1].shape[0], in[0].shape[1], threads).bytes(origin);
}

void head_loss(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const bool with_gradient = static_cast<const HeadLoss&>(op).with_gradient;
  const Tensor &h = in[0], &weight = in[1], &labels = in[2];
  const int64_t rows = h.shape[0], width = h.shape[1], vocabulary = weight.shape[0];
  const Scratch scratch(context.scratch.data(), rows, vocabulary, width, context.pool.size());
  std::fill_n(scratch.maxima, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sums, rows, 0.0f);
  float* const dh = with_gradient ? out[1].f32() : nullptr;
  const int64_t dh_stride = with_gradient ? out[1].strides[0] : 0;
  const auto absorb = HWY_DYNAMIC_DISPATCH(absorb_logits);
  const auto rescale = HWY_DYNAMIC_DISPATCH(scale_subtract);

  for (int64_t v0 = 0; v0 < vocabulary && rows > 0; v0 += kPanelRows) {
    const int64_t count = std::min(kPanelRows, vocabulary - v0);
    product(rows, count, width, {h.f32(), h.strides[0], h.strides[1]}, RightOperand::frozen(weight, true, v0), {},
            scratch.logits, count, context.pool, scratch.product);
    for_rows(context.pool, rows, count, [&](int64_t m) {
      float* const logits = scratch.logits + m * count;
      const int64_t label = row_index(labels, m, vocabulary);
      if (label >= v0 && label < v0 + count) scratch.label_logits[m] = logits[label - v0];
      const float factor = absorb(logits, count, scratch.maxima + m, scratch.sums + m);
      if (with_gradient && v0 > 0 && factor != 1.0f) rescale(dh + m * dh_stride, width, factor, nullptr);
    });
    if (with_gradient)
      product(rows, width, count, {scratch.logits, count, 1}, RightOperand::frozen(weight, false, v0),
              v0 > 0 ? Addend{dh, dh_stride} : Addend{}, dh, dh_stride, context.pool, scratch.product);
    if (context.progress != nullptr) context.progress->rows_done(v0 + count);
  }

  const auto log = HWY_DYNAMIC_DISPATCH(log_of);
  double loss = 0.0;
  for (int64_t m = 0; m < rows; ++m)
    loss += static_cast<double>(scratch.maxima[m] + log(scratch.sums[m]) - scratch.label_logits[m]);
  out[0].f32()[0] = static_cast<float>(loss);
  if (!with_gradient) return;
  const DecodeRow decode = decode_row(weight.dtype);
  lookups(context, rows, [&](int64_t begin, int64_t end) {
    const int64_t share = (end - begin + context.pool.size() - 1) / context.pool.size();
    context.pool.run(context.pool.size(), [&](int64_t task, int) {
      float* const label_row = scratch.decoded + task * width;
      for (int64_t m = begin + task * share; m < std::min(end, begin + (task + 1) * share); ++m) {
        decode(weight.row(row_index(labels, m, vocabulary)), 0, width, label_row);
        rescale(dh + m * dh_stride, width, 1.0f / scratch.sums[m], label_row);
      }
    });
  });
}

}  // namespace patina::cpu
#endif  // HWY_ONCE
