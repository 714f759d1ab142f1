#include "quant/decode.h"

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/decode.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "quant/floats-inl.h"
#include "quant/iq4_nl-inl.h"
#include "quant/iq4_xs-inl.h"
#include "quant/mxfp4-inl.h"
#include "quant/q2_k-inl.h"
#include "quant/q3_k-inl.h"
#include "quant/q4_0-inl.h"
#include "quant/q4_1-inl.h"
#include "quant/q4_k-inl.h"
#include "quant/q5_0-inl.h"
#include "quant/q5_1-inl.h"
#include "quant/q5_k-inl.h"
#include "quant/q6_k-inl.h"
#include "quant/q8_0-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

template <auto kDecode, int kBytes>
void decode_values(const void* row, int64_t begin, int64_t count, float* out) {
  kDecode(static_cast<const uint8_t*>(row) + begin * kBytes, count, out);
}

template <typename Block>
void decode_blocks(const void* row, int64_t begin, int64_t count, float* out) {
  static_assert(alignof(Block) == 1);
  PATINA_CHECK(begin % Block::kValues == 0 && count % Block::kValues == 0, "begin {} count {}", begin, count);
  const Block* block = static_cast<const Block*>(row) + begin / Block::kValues;
  for (int64_t i = 0; i < count; i += Block::kValues) Block::decode(*block++, out + i);
}

DecodeRow select_decoder(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return decode_values<decode_f32, 4>;
    case DType::kF16:
      return decode_values<decode_f16, 2>;
    case DType::kBF16:
      return decode_values<decode_bf16, 2>;
    case DType::kQ8_0:
      return decode_blocks<Q8_0>;
    case DType::kQ4_0:
      return decode_blocks<Q4_0>;
    case DType::kQ4_1:
      return decode_blocks<Q4_1>;
    case DType::kQ5_0:
      return decode_blocks<Q5_0>;
    case DType::kQ5_1:
      return decode_blocks<Q5_1>;
    case DType::kQ2_K:
      return decode_blocks<Q2_K>;
    case DType::kQ3_K:
      return decode_blocks<Q3_K>;
    case DType::kQ4_K:
      return decode_blocks<Q4_K>;
    case DType::kQ5_K:
      return decode_blocks<Q5_K>;
    case DType::kQ6_K:
      return decode_blocks<Q6_K>;
    case DType::kIQ4_NL:
      return decode_blocks<IQ4_NL>;
    case DType::kIQ4_XS:
      return decode_blocks<IQ4_XS>;
    case DType::kMXFP4:
      return decode_blocks<MXFP4>;
    default:
      return nullptr;
  }
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina {

HWY_EXPORT(select_decoder);

DecodeRow decode_row(DType dtype) { return HWY_DYNAMIC_DISPATCH(select_decoder)(dtype); }
bool is_decodable(DType dtype) { return decode_row(dtype) != nullptr; }

}  // namespace patina
#endif
