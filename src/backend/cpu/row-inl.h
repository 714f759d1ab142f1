// Walks a row of floats in vectors. The last, incomplete vector is filled up with zeros, so that nothing beyond a row
// is ever read or written and every instruction set computes the same thing.
#if defined(PATINA_BACKEND_CPU_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_ROW_INL_H_
#undef PATINA_BACKEND_CPU_ROW_INL_H_
#else
#define PATINA_BACKEND_CPU_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: the number of partial sums of a reduction (reduce-inl.h).
using Floats = hn::CappedTag<float, 16>;
using FloatVector = hn::Vec<Floats>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// The first n < kLanes floats at p, zeros after them; and back.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET <= HWY_AVX3  // have loads and stores that touch no more than what is asked for
HWY_INLINE FloatVector load_first(const float* p, int64_t n) {
  return hn::MaskedLoad(hn::FirstN(Floats(), static_cast<size_t>(n)), Floats(), p);
}
HWY_INLINE void store_first(FloatVector v, float* p, int64_t n) {
  hn::BlendedStore(v, hn::FirstN(Floats(), static_cast<size_t>(n)), Floats(), p);
}
#else
inline FloatVector load_first(const float* p, int64_t n) {
  alignas(64) float buffer[kLanes] = {};
  if (n > 0) std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(Floats(), buffer);
}
inline void store_first(FloatVector v, float* p, int64_t n) {
  alignas(64) float buffer[kLanes];
  hn::Store(v, Floats(), buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}
#endif

// Where the walk stands: a body loads from its inputs and stores to its outputs at the same columns.
struct Whole {
  int64_t i;
  FloatVector load(const float* row) const { return hn::LoadU(Floats(), row + i); }
  void store(FloatVector v, float* row) const { hn::StoreU(v, Floats(), row + i); }
};
struct Partial {
  int64_t i, n;
  FloatVector load(const float* row) const { return load_first(row + i, n); }
  void store(FloatVector v, float* row) const { store_first(v, row + i, n); }
};

// Calls body(at) for the columns [0, n), one vector at a time.
template <typename Body>
HWY_INLINE void for_vectors(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(Whole{i});
  if (i < n) body(Partial{i, n - i});
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
