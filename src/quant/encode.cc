#include "quant/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/half.h"

namespace patina {
namespace {

constexpr int kBlock = 32;

template <typename Stored, Stored (*kConvert)(float)>
void encode_values(const float* values, int64_t count, void* out) {
  auto* bytes = static_cast<uint8_t*>(out);
  for (int64_t i = 0; i < count; ++i) {
    const Stored stored = kConvert(values[i]);
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof stored), &stored, sizeof stored);
  }
}

void encode_f32(const float* values, int64_t count, void* out) {
  std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
}

uint8_t* put_f16(uint8_t* out, float value) {
  const uint16_t half = f16_from_f32(value);
  std::memcpy(out, &half, sizeof half);
  return out + sizeof half;
}

// What codes are multiplied by. A scale whose inverse is no number is 0 in F16: its codes mean nothing.
float inverse(float d) {
  const float id = d == 0.0f ? 0.0f : 1.0f / d;
  return std::isfinite(id) ? id : 0.0f;
}

uint8_t nibble(float code) { return static_cast<uint8_t>(std::clamp(std::trunc(code), 0.0f, 15.0f)); }

void encode_q8_0(const float* x, uint8_t* out) {
  float most = 0.0f;
  for (int i = 0; i < kBlock; ++i) most = std::max(most, std::abs(x[i]));
  const float d = most / 127.0f, id = inverse(d);
  out = put_f16(out, d);
  for (int i = 0; i < kBlock; ++i) out[i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * id)));
}

// The value that is largest in magnitude gets code 0, which is -8.
void encode_q4_0(const float* x, uint8_t* out) {
  float most = x[0];
  for (int i = 1; i < kBlock; ++i)
    if (std::abs(x[i]) > std::abs(most)) most = x[i];
  const float d = most / -8.0f, id = inverse(d);
  out = put_f16(out, d);
  const auto code = [&](int i) { return nibble(x[i] * id + 8.5f); };
  for (int i = 0; i < kBlock / 2; ++i) out[i] = static_cast<uint8_t>(code(i) | code(i + kBlock / 2) << 4);
}

void encode_q4_1(const float* x, uint8_t* out) {
  const auto [least, most] = std::minmax_element(x, x + kBlock);
  const float m = *least, d = (*most - m) / 15.0f, id = inverse(d);
  out = put_f16(put_f16(out, d), m);
  const auto code = [&](int i) { return nibble((x[i] - m) * id + 0.5f); };
  for (int i = 0; i < kBlock / 2; ++i) out[i] = static_cast<uint8_t>(code(i) | code(i + kBlock / 2) << 4);
}

template <void (*kEncode)(const float*, uint8_t*), int kBytes>
void encode_blocks(const float* values, int64_t count, void* out) {
  for (int64_t block = 0; block < count / kBlock; ++block)
    kEncode(values + block * kBlock, static_cast<uint8_t*>(out) + block * kBytes);
}

}  // namespace

EncodeRow encode_row(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return encode_f32;
    case DType::kF16:
      return encode_values<uint16_t, f16_from_f32>;
    case DType::kBF16:
      return encode_values<uint16_t, bf16_from_f32>;
    case DType::kQ8_0:
      return encode_blocks<encode_q8_0, 34>;
    case DType::kQ4_0:
      return encode_blocks<encode_q4_0, 18>;
    case DType::kQ4_1:
      return encode_blocks<encode_q4_1, 20>;
    default:
      return nullptr;
  }
}

std::string encodable_names() {
  std::string names;
  for (const DTypeInfo& row : all_dtypes())
    if (encode_row(row.dtype) != nullptr) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace patina
