// A backend is a table from op name to kernel. Graph, plan and models know no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/threads.h"
#include "ir/graph.h"

namespace patina {

// Told by kernels how far they are in a frozen weight, where weights are streamed.
class WeightProgress {
 public:
  virtual ~WeightProgress() = default;
  virtual void rows_done(int64_t rows) = 0;  // of a large weight that is gone through from the first row to the last
  virtual void looked_up() = 0;              // kLookupRows single rows, and not needed any more
};
inline constexpr int64_t kLookupRows = 16;

struct KernelContext {
  ThreadPool& pool;
  std::span<std::byte> scratch;        // 64-byte aligned, at least what scratch_bytes() asked for
  WeightProgress* progress = nullptr;  // may be absent
};

// Inputs and outputs in the order of the op's contract; an absent optional input has no data. A kernel allocates
// nothing.
using Kernel = void (*)(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context);
// Scratch that a kernel needs for tensors of at most these shapes on this many threads.
using ScratchBytes = int64_t (*)(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, int threads);

struct KernelEntry {
  std::string_view op;
  Kernel run;
  ScratchBytes scratch_bytes;  // null: none
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // InternalError where the backend lacks the op.
  virtual const KernelEntry& kernel(std::string_view op) const = 0;
};

}  // namespace patina
