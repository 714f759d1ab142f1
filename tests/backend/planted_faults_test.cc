// The harness itself: each kind of wrong kernel must make its checks fail.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/cases.h"
#include "support/compare.h"
#include "support/wrapped_backend.h"

namespace patina {
namespace {

// What a faulty kernel does to its first output.
using Corruption = void (*)(const Tensor& out);

const std::pair<const char*, Corruption> kFaults[] = {
    {"sign of one value", [](const Tensor& out) { out.f32()[out.shape.elements() / 2] *= -1; }},
    {"NaN in the last place",
     [](const Tensor& out) { out.f32()[out.shape.elements() - 1] = std::numeric_limits<float>::quiet_NaN(); }},
    {"infinity", [](const Tensor& out) { out.f32()[0] = std::numeric_limits<float>::infinity(); }},
    {"off by one row",
     [](const Tensor& out) { std::rotate(out.f32(), out.f32() + out.shape[1], out.f32() + out.shape.elements()); }},
    {"all zero", [](const Tensor& out) { std::fill_n(out.f32(), out.shape.elements(), 0.0f); }},
    {"one row not written",
     [](const Tensor& out) {
       std::fill_n(out.f32() + out.shape[1], out.shape[1], std::numeric_limits<float>::quiet_NaN());
     }},
    {"a thousandth too large",
     [](const Tensor& out) {
       for (int64_t i = 0; i < out.shape.elements(); ++i) out.f32()[i] *= 1.001f;
     }},
};

// The CPU backend with one op's kernel made faulty.
WrappedBackend faulty(std::string_view name, Corruption corrupt) {
  return WrappedBackend(cpu_backend(), [=](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in,
                                           std::span<const Tensor> out, KernelContext& context) {
    kernel.run(op, in, out, context);
    if (op.name() == name) corrupt(out[0]);
  });
}

using Direction = FrozenLinear::Direction;

const std::pair<const char*, OpCase> kKernels[] = {
    {"add", add_case(7, 17, Layout::kStrided)},
    {"swiglu", swiglu_case(7, 17, Layout::kStrided)},
    {"swiglu_grad", swiglu_grad_case(7, 17, Layout::kComputed)},
    {"rms_norm", rms_norm_case(7, 257, Layout::kStrided)},
    {"rms_norm_grad", rms_norm_grad_case(7, 257, true, Layout::kComputed)},
    {"rope", rope_case(7, 2, 16, 16, false, Layout::kStrided)},
    {"frozen_linear", frozen_linear_case(Direction::kForward, {.m = 7, .n = 17, .k = 257}, Layout::kStrided)},
    {"matmul", matmul_case({.m = 7, .n = 17, .k = 257}, Layout::kStrided)},
    {"outer_product", outer_product_case(7, 17, 257, true, false, Layout::kStrided)},
    {"transposed_copy", transposed_copy_case(DType::kF32, 17, 7)},
    {"dense_copy", dense_copy_of_transpose_case(7, 17, Layout::kStrided)},
    {"embedding", embedding_case(DType::kBF16, 7, 31, 17)},
    {"gather_rows", gather_rows_case(17, 7, 17, Layout::kStrided)},
};

TEST(PlantedFaults, InKernels) {
  for (const auto& [op, op_case] : kKernels) {
    EXPECT_TRUE(check_kernel(op_case));
    for (const auto& [what, corrupt] : kFaults) {
      const WrappedBackend backend = faulty(op, corrupt);
      EXPECT_FALSE(check_kernel(op_case, backend)) << op << " with " << what;
    }
  }
}

TEST(PlantedFaults, InGradients) {
  const std::pair<const char*, OpCase> gradients[] = {
      {"swiglu_grad", swiglu_case(7, 5, Layout::kStrided)},
      {"rms_norm_grad", rms_norm_case(7, 5, Layout::kStrided)},
      {"scatter_rows", gather_rows_case(7, 5, 5, Layout::kStrided)},
      {"frozen_linear",
       frozen_linear_case(Direction::kForward, {.m = 7, .n = 5, .k = 3, .acc = true}, Layout::kStrided)},
  };
  for (const auto& [op, op_case] : gradients) {
    EXPECT_TRUE(check_gradient(op_case));
    for (const auto& [what, corrupt] : kFaults) {
      // A sign is no fault where the value is zero: a row that was not gathered.
      if (std::string_view(op) == "scatter_rows" && std::string_view(what) == "sign of one value") continue;
      const WrappedBackend backend = faulty(op, corrupt);
      EXPECT_FALSE(check_gradient(op_case, backend)) << op << " with " << what;
    }
  }
}

TEST(PlantedFaults, InAdjoints) {
  const OpCase op =
      frozen_linear_case(Direction::kForward, {.m = 7, .n = 17, .k = 256, .dtype = DType::kQ8_0}, Layout::kStrided);
  EXPECT_TRUE(check_adjoint(op));
  for (const auto& [what, corrupt] : kFaults) {
    // Both directions are scaled alike, which an adjoint identity cannot see.
    if (std::string_view(what) == "a thousandth too large") continue;
    const WrappedBackend backend = faulty("frozen_linear", corrupt);
    EXPECT_FALSE(check_adjoint(op, backend)) << what;
  }
}

// Beyond the output by one value, and before it.
TEST(PlantedFaults, OutOfBounds) {
  const OpCase op = add_case(7, 17, Layout::kStrided);
  for (const Corruption corrupt : {Corruption([](const Tensor& out) { out.f32()[out.shape.elements()] = 1; }),
                                   Corruption([](const Tensor& out) { out.f32()[-1] = 1; })}) {
    // Only seen through the guards, which lie inside the fault: a wrapped backend's kernel gets the guarded tensors.
    const WrappedBackend backend = faulty("add", corrupt);
    EXPECT_FALSE(check_kernel(op, backend));
  }
}

// Results that depend on the number of threads, within the tolerance.
TEST(PlantedFaults, ThreadCount) {
  const WrappedBackend backend(cpu_backend(), [](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in,
                                                 std::span<const Tensor> out, KernelContext& context) {
    kernel.run(op, in, out, context);
    if (context.pool.size() == 3) out[0].f32()[5] = std::nextafter(out[0].f32()[5], 0.0f);
  });
  EXPECT_FALSE(check_kernel(rms_norm_case(7, 257, Layout::kStrided), backend));
}

TEST(Compare, CountsEveryKindOfDifference) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> expected{1, 2, -3, -kInf};
  EXPECT_TRUE(compare(expected, expected, {}).ok());
  EXPECT_TRUE(compare(std::vector<double>{1, 2, -3.01, -kInf}, expected, {0.02, 0}).ok());
  const Comparison nan = compare(std::vector<double>{1, kNan, -3, -kInf}, expected, {1e9, 1e9});
  EXPECT_FALSE(nan.ok());
  EXPECT_EQ(nan.non_finite, 1);
  EXPECT_EQ(nan.worst, 1);
  EXPECT_FALSE(compare(std::vector<double>{1, kInf, -3, -kInf}, expected, {1e9, 1e9}).ok());
  EXPECT_FALSE(compare(std::vector<double>{1, 2, -3, kInf}, expected, {1e9, 1e9}).ok());
  EXPECT_FALSE(compare(std::vector<double>{1, 2, -3, 0}, expected, {1e9, 1e9}).ok());
  EXPECT_FALSE(compare(std::vector<double>{kNan}, std::vector<double>{kNan}, {1, 1}).ok());
  const Comparison off = compare(std::vector<double>{1, 2.5, -3, -kInf}, expected, {0.25, 0});
  EXPECT_EQ(off.bad, 1);
  EXPECT_EQ(off.worst, 1);
  EXPECT_DOUBLE_EQ(off.max_error, 0.5);
  EXPECT_DOUBLE_EQ(compare(std::vector<double>{-1}, std::vector<double>{2}, {}).cosine, -1);
}

}  // namespace
}  // namespace patina
