#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <set>

#include "backend/reference_backend.h"
#include "quant/decode.h"
#include "support/cases.h"

namespace patina {
namespace {

TEST(CpuBackend, InstructionSets) {
  const std::vector<std::string> isas = cpu_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(cpu_isa(), isas.front());
  // Every 64-bit ARM machine has NEON, so the portable kernels are not compiled there.
  EXPECT_EQ(isas.back(), HWY_ARCH_ARM_A64 ? "NEON" : "portable");
  std::set<DecodeRow> decoders;
  for (const std::string& isa : isas) {
    use_isa(isa);
    EXPECT_EQ(cpu_isa(), isa);
    EXPECT_EQ(cpu_isas(), isas);
    decoders.insert(decode_row(DType::kQ4_K));  // decoding follows
  }
  EXPECT_EQ(decoders.size(), isas.size());
  use_isa("");
  EXPECT_EQ(cpu_isa(), isas.front());
  EXPECT_THROW(use_isa("MMX"), InternalError);
}

TEST(CpuBackend, UnknownOp) {
  EXPECT_THROW(cpu_backend().kernel("no such op"), InternalError);
  EXPECT_THROW(reference_backend().kernel("no such op"), InternalError);
}

TEST(ReferenceBackend, RunsBehindTheExecutor) {
  using Direction = FrozenLinear::Direction;
  for (const Layout layout : {Layout::kStrided, Layout::kComputed}) {
    EXPECT_TRUE(check_kernel(add_case(7, 17, layout), reference_backend()));
    EXPECT_TRUE(check_kernel(rope_case(7, 2, 16, 16, false, layout), reference_backend()));
    EXPECT_TRUE(check_kernel(
        frozen_linear_case(Direction::kBackward,
                           {.m = 7, .n = 17, .k = 256, .dtype = DType::kQ4_K, .row_map = true, .acc = true}, layout),
        reference_backend()));
    EXPECT_TRUE(
        check_kernel(matmul_case({.m = 7, .n = 17, .k = 5, .acc_is_state = true}, layout), reference_backend()));
  }
  EXPECT_TRUE(check_kernel(embedding_case(DType::kQ8_0, 7, 31, 64), reference_backend()));
  EXPECT_TRUE(check_kernel(cache_append_case(17, 10, 7, 7), reference_backend()));
  EXPECT_TRUE(check_gradient(head_loss_case(DType::kF32, 3, 5, 7), reference_backend()));
}

}  // namespace
}  // namespace patina
