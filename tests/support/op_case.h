// The harness that every op goes through: kernel against reference on every instruction set and for several thread
// counts, gradient rule against a complex step, adjoint identity.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/philox.h"
#include "graph/executor.h"
#include "graph/reference_executor.h"
#include "ir/graph.h"

namespace patina {

// The sizes that find mistakes in loops and tails.
inline constexpr int64_t kOddSizes[] = {1, 7, 17, 255, 257};

// A graph with random data for its external values. Everything is a function of the order of the calls.
class CaseBuilder {
 public:
  // With `symbolic`, rows() gives extents that vary, with a maximum above the size of this run.
  explicit CaseBuilder(bool symbolic) : symbolic_(symbolic) {}

  Graph graph;

  // An outermost extent of n rows; the same extent for the same tag.
  Extent rows(int64_t n, const std::string& tag = "T");
  // F32 normal numbers times `scale`; with a gradient.
  ValueId values(Extents extents, double scale = 1);
  // F32 numbers without a gradient: `fill(i)`.
  ValueId constant(Extents extents, const std::function<double(int64_t)>& fill);
  ValueId ints(Extents extents, std::vector<int32_t> numbers);
  ValueId frozen(DType dtype, int64_t rows, int64_t columns, bool row_map = false);
  ValueId frozen_vector(int64_t columns);
  // Kept from run to run; starts as normal numbers.
  ValueId state(Extents extents);

  // Binds the data for a run, and gives states their first numbers again.
  void bind(Executor& executor);
  template <typename S>
  void bind(ReferenceExecutor<S>& executor) const {
    for (const External& external : externals_) executor.bind(external.id, external.first.data());
  }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  const std::vector<ValueId>& differentiable() const { return differentiable_; }
  std::span<const float> numbers(ValueId input) const;
  double normal() { return random_.normal(next_++); }
  uint64_t below(uint64_t bound) { return random_.below(bound, next_++); }

 private:
  struct External {
    ValueId id;
    std::vector<std::byte> first, bytes;  // as made, and what runs may write
  };
  void add_external(ValueId id, const void* data, size_t bytes);
  ValueId floats(ValueId id, const std::function<double(int64_t)>& fill);
  int64_t actual_elements(ValueId id) const;

  const bool symbolic_;
  std::map<std::string, Extent> extents_;
  std::vector<int64_t> sizes_;
  std::vector<External> externals_;
  std::vector<ValueId> differentiable_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> weights_;
  std::vector<std::unique_ptr<std::vector<int32_t>>> row_maps_;
  RandomStream random_{1, RandomUse::kTest, 0};
  uint64_t next_ = 0;
};

struct OpCase {
  std::string name;
  // Builds the op (and views before it) and returns its outputs. The last node that is no view is the one that is
  // checked.
  std::function<std::vector<ValueId>(CaseBuilder&)> build;
  int64_t reduction = 1;  // length of the longest sum in its gradient
};

// (a) The kernel meets the double reference within the derived tolerance on every instruction set; the bits
// are the same for 1, 2, 3 and 5 threads and for all instruction sets with fused multiply-add; nothing is written
// outside the outputs.
testing::AssertionResult check_kernel(const OpCase& op, const Backend& backend = cpu_backend());

// (b) With L = sum of random cotangents times outputs[0], the gradient nodes give dL/dx of every differentiable input:
// exactly, run by the references in double, and within the derived tolerance on the backend. For small shapes.
testing::AssertionResult check_gradient(const OpCase& op, const Backend& backend = cpu_backend());

// (c) For an op linear in its only differentiable input x: <c, f(x)> = <f'(c), x> on the backend.
testing::AssertionResult check_adjoint(const OpCase& op, const Backend& backend = cpu_backend());

}  // namespace patina
