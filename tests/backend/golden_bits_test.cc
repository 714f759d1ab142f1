// One number per kernel that every instruction set and every architecture must give: a checksum of its results' bits,
// recorded on x86-64 with AVX-512. The portable kernels have no fused multiply-add and so bits of their own; they are
// held against the references in kernels_test.cc.
#include <gtest/gtest.h>

#include "ops/attention.h"
#include "support/cases.h"

namespace patina {
namespace {

using Direction = FrozenLinear::Direction;
constexpr Layout kLayout = Layout::kStrided;

// FNV-1a.
uint64_t checksum(const float* numbers, int64_t count, uint64_t hash) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(numbers);
  for (size_t i = 0; i < static_cast<size_t>(count) * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

// Two packed sequences of 70 and 33 tokens, 4 query heads on 2 key heads of 64 columns; output, lse and the three
// gradients.
OpCase attention_case() {
  return {"attention and its gradient", [](CaseBuilder& b) {
            const AttentionSpec spec{4, 2, 64, AttentionSpec::Mask::kCausal, 0, 0.125f};
            const Extents queries{103, 256}, keys{103, 128};
            const ValueId q = b.values(queries), k = b.values(keys), v = b.values(keys), dy = b.values(queries);
            const ValueId offsets = b.ints({3}, {0, 70, 103}), first = b.ints({2}, {0, 0});
            std::vector<ValueId> inputs{q, k, v, offsets, offsets, first};
            std::vector<ValueId> outputs =
                b.graph.node(std::make_shared<Attention>(spec), inputs, {queries, {103, 4}}, "y");
            inputs.insert(inputs.end(), {outputs[0], outputs[1], dy});
            const std::vector<ValueId> gradients =
                b.graph.node(std::make_shared<AttentionGrad>(spec), inputs, {queries, keys, keys}, "dy");
            outputs.insert(outputs.end(), gradients.begin(), gradients.end());
            return outputs;
          }};
}

struct Golden {
  OpCase op;
  uint64_t checksum;
};

std::vector<Golden> goldens() {
  const auto product = [](Direction direction, DType dtype) {
    return frozen_linear_case(direction, {.m = 37, .n = 701, .k = 1024, .dtype = dtype, .row_map = true}, kLayout);
  };
  const auto few_rows = [](DType dtype) {
    return frozen_linear_case(Direction::kForward, {.m = 3, .n = 37, .k = 1536, .dtype = dtype, .few_rows = true},
                              kLayout);
  };
  return {
      {product(Direction::kForward, DType::kBF16), 0xc23652c892cb6c58},
      {product(Direction::kForward, DType::kQ4_K), 0xcb19b1feff5724e2},
      {product(Direction::kBackward, DType::kBF16), 0x71d1704ea0c91fa5},
      {product(Direction::kBackward, DType::kQ4_K), 0x6ee2400e5c8f6266},
      {few_rows(DType::kBF16), 0x954d3df9b3f71668},
      {few_rows(DType::kQ4_K), 0xa4fef31e4f4a9a08},
      {matmul_case({.m = 33, .n = 65, .k = 257, .scale = 0.3f}, kLayout), 0x9793aa06abfe4f15},
      {attention_case(), 0x5154c362a24a5fd2},
      {rms_norm_case(7, 257, kLayout), 0xf25ce045bf8dd751},
      {rms_norm_grad_case(7, 257, true, kLayout), 0x3f245d1ec36b6613},
      {head_loss_case(DType::kBF16, 17, 256, 1100), 0x18e92d355dcbb6af},
      {head_loss_case(DType::kQ6_K, 17, 256, 1100), 0x0e962acb41c15174},
      {swiglu_case(7, 257, kLayout), 0xdecb9a186785349a},
      {swiglu_grad_case(7, 257, kLayout), 0xb9d5ac574761b86f},
      {rope_case(17, 3, 64, 64, false, kLayout), 0xb5fec3da26ede477},
      {embedding_case(DType::kIQ4_XS, 7, 31, 512), 0x67ea350384649f0c},
  };
}

TEST(GoldenBits, SameOnEveryInstructionSetAndArchitecture) {
  for (const Golden& golden : goldens()) {
    CaseBuilder builder(false);
    const std::vector<ValueId> outputs = golden.op.build(builder);
    for (const ValueId output : outputs) builder.graph.mark_output(output);
    for (const std::string& isa : cpu_isas()) {
      if (isa == "portable") continue;
      use_isa(isa);
      ThreadPool pool(2);
      Executor executor(builder.graph, cpu_backend(), pool);
      builder.bind(executor);
      executor.run(builder.sizes());
      uint64_t hash = 0xcbf29ce484222325u;
      for (const ValueId output : outputs) {
        const Tensor tensor = executor.tensor(output);
        ASSERT_TRUE(tensor.contiguous());
        hash = checksum(tensor.f32(), tensor.shape.elements(), hash);
      }
      EXPECT_EQ(hash, golden.checksum) << golden.op.name << " on " << isa << std::hex << ": 0x" << hash;
    }
    use_isa("");
  }
}

}  // namespace
}  // namespace patina
