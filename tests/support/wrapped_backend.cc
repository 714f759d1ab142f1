#include "support/wrapped_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace patina {

template <size_t kSlot>
void WrappedBackend::run(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                         KernelContext& context) {
  const WrappedBackend& self = *slots_[kSlot];
  self.hook_(self.inner_.kernel(op.name()), op, in, out, context);
}

WrappedBackend::WrappedBackend(const Backend& inner, Hook hook) : inner_(inner), hook_(std::move(hook)) {
  while (slot_ < kSlots && slots_[slot_] != nullptr) ++slot_;
  PATINA_CHECK(slot_ < kSlots, "{} wrapped backends at once", kSlots);
  slots_[slot_] = this;
}

WrappedBackend::~WrappedBackend() { slots_[slot_] = nullptr; }

const KernelEntry& WrappedBackend::kernel(std::string_view op) const {
  static constexpr Kernel kRun[kSlots] = {run<0>, run<1>, run<2>, run<3>};
  const auto [entry, added] = entries_.try_emplace(std::string(op));
  if (added) entry->second = {entry->first, kRun[slot_], inner_.kernel(op).scratch_bytes};
  return entry->second;
}

namespace {

// `bytes` bytes between two bands of canaries, 64-byte aligned.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), memory_(kBand + bytes + kBand + kAlign, kCanary) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = memory_.data() + kBand + (kAlign - address % kAlign) % kAlign;
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 0; i + sizeof kNan <= bytes; i += sizeof kNan) std::memcpy(start_ + i, &kNan, sizeof kNan);
  }
  std::byte* data() { return start_; }
  bool intact() const {
    const auto is_canary = [](std::byte b) { return b == kCanary; };
    return std::all_of(memory_.data(), static_cast<const std::byte*>(start_), is_canary) &&
           std::all_of(static_cast<const std::byte*>(start_) + bytes_, memory_.data() + memory_.size(), is_canary);
  }

 private:
  static constexpr size_t kBand = 1024, kAlign = 64;
  static constexpr std::byte kCanary{0xA5};
  size_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* start_;
};

}  // namespace

WrappedBackend guarded(const Backend& inner, int64_t* violations) {
  return WrappedBackend(inner, [violations](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in,
                                            std::span<const Tensor> out, KernelContext& context) {
    std::vector<Guarded> buffers;
    std::vector<Tensor> inputs(in.begin(), in.end()), outputs(out.begin(), out.end());
    for (Tensor& output : outputs) {
      PATINA_CHECK(output.contiguous(), "{} writes a strided output", op.name());
      const void* real = output.data;
      const size_t bytes = static_cast<size_t>(bytes_of(output.dtype, output.shape.elements()));
      Guarded& buffer = buffers.emplace_back(bytes);
      output.data = buffer.data();
      for (Tensor& input : inputs)
        if (input.data == real && input.shape == output.shape) {
          std::memcpy(buffer.data(), real, bytes);
          input.data = buffer.data();
        }
    }
    Guarded scratch(context.scratch.size());
    KernelContext guarded_context{context.pool, {scratch.data(), context.scratch.size()}};
    kernel.run(op, inputs, outputs, guarded_context);
    if (!scratch.intact()) ++*violations;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!buffers[i].intact()) ++*violations;
      if (out[i].shape.elements() > 0)
        std::memcpy(out[i].data, buffers[i].data(),
                    static_cast<size_t>(bytes_of(out[i].dtype, out[i].shape.elements())));
    }
  });
}

}  // namespace patina
