// A backend is a table from op name to kernel. Graph, plan and models know no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "base/threads.h"
#include "ir/graph.h"

namespace patina {

struct KernelContext {
  ThreadPool& pool;
  std::span<std::byte> scratch;  // 64-byte aligned, at least what scratch_bytes() asked for
  // Where given, a kernel that goes through a large frozen weight row by row may tell how many rows it is done with.
  const FunctionRef<void(int64_t rows)>* rows_done = nullptr;
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
