// A backend around another one: a hook runs in place of each kernel and may call it. Used to guard outputs and to plant
// faults.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "backend/backend.h"

namespace patina {

class WrappedBackend : public Backend {
 public:
  using Hook = std::function<void(const KernelEntry& inner, const Op& op, std::span<const Tensor> in,
                                  std::span<const Tensor> out, KernelContext& context)>;
  WrappedBackend(const Backend& inner, Hook hook);
  ~WrappedBackend() override;
  WrappedBackend(const WrappedBackend&) = delete;
  WrappedBackend& operator=(const WrappedBackend&) = delete;

  std::string_view name() const override { return "wrapped"; }
  const KernelEntry& kernel(std::string_view op) const override;

 private:
  // A kernel is a plain function, so each living backend takes one of a few functions that know it by a slot.
  static constexpr size_t kSlots = 4;
  static inline const WrappedBackend* slots_[kSlots] = {};
  template <size_t kSlot>
  static void run(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context);

  const Backend& inner_;
  const Hook hook_;
  size_t slot_ = 0;
  mutable std::map<std::string, KernelEntry, std::less<>> entries_;
};

// A backend that runs every kernel on guarded buffers: outputs and scratch are filled with NaN before and lie between
// canaries that are checked after each kernel; where an output takes over an input's storage it does so there. Kernels
// that wrote where they must not are counted in `violations`.
WrappedBackend guarded(const Backend& inner, int64_t* violations);

}  // namespace patina
