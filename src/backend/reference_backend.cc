#include "backend/reference_backend.h"

#include <bit>
#include <cmath>
#include <vector>

#include "ops/reference.h"
#include "quant/decode.h"

namespace patina {

namespace {

// The tensor's numbers where they lie, or decoded into `decoded` where they are stored in another type or row order.
RefTensor<float> reference_tensor(const Tensor& tensor, std::vector<float>& decoded) {
  RefTensor<float> reference;
  if (!tensor.present()) return reference;
  reference.shape = tensor.shape;
  reference.strides = tensor.strides;
  if (tensor.dtype == DType::kI32) {
    reference.ints = tensor.i32();
  } else if (tensor.dtype == DType::kF32 && tensor.row_map == nullptr) {
    reference.data = tensor.f32();
  } else {
    const DecodeRow decode = decode_row(tensor.dtype);
    PATINA_CHECK(decode != nullptr, "type {}", name(tensor.dtype));
    decoded.resize(static_cast<size_t>(tensor.shape.elements()));
    for (int64_t r = 0; r < tensor.shape[0]; ++r)
      decode(tensor.row(r), 0, tensor.shape[1], decoded.data() + r * tensor.shape[1]);
    reference.data = decoded.data();
    reference.strides = contiguous_strides(tensor.shape);
  }
  return reference;
}

// Back to what f32_from_f16 gave `value`: exact, which is all that copies of stored numbers need.
uint16_t f16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = std::isfinite(value) ? std::bit_cast<uint32_t>(std::abs(value) * 0x1p-112f) >> 13
                                                  : (bits >> 13 & 0x3ffu) | 0x7c00u;
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | magnitude);
}

// The results in the output's own 16-bit type, where it has one.
void store(const std::vector<float>& results, const Tensor& output) {
  auto* const words = static_cast<uint16_t*>(output.data);
  for (size_t i = 0; i < results.size(); ++i)
    words[i] = output.dtype == DType::kF16 ? f16_of(results[i])
                                           : static_cast<uint16_t>(std::bit_cast<uint32_t>(results[i]) >> 16);
}

void run_reference(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext&) {
  std::vector<std::vector<float>> decoded(in.size() + out.size());
  std::vector<RefTensor<float>> inputs, outputs;
  for (size_t i = 0; i < in.size(); ++i) inputs.push_back(reference_tensor(in[i], decoded[i]));
  for (size_t i = 0; i < out.size(); ++i) outputs.push_back(reference_tensor(out[i], decoded[in.size() + i]));
  reference_kernel<float>(op.name())(op, inputs, outputs);
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].dtype == DType::kF16 || out[i].dtype == DType::kBF16) store(decoded[in.size() + i], out[i]);
}

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  const KernelEntry& kernel(std::string_view op) const override {
    static constexpr KernelEntry kAnyOp{"", run_reference, nullptr};
    reference_kernel<float>(op);  // throws where there is none
    return kAnyOp;
  }
};

}  // namespace

const Backend& reference_backend() {
  static const ReferenceBackend backend;
  return backend;
}

}  // namespace patina
