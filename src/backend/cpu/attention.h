// Attention on the CPU. Forward: the contract in ops/attention.h, by tiles of 64 queries with a running softmax.
// Backward makes the probabilities again from lse, once for dq (tiles of queries) and once for dk and dv (tiles of
// keys), so that no task adds to another's output. A sequence of fewer than 8 queries (generation) takes a path of
// direct inner products in the forward op, so its bits differ from those of the same query in a longer sequence.
#pragma once

#include "backend/backend.h"

namespace patina {

void attention(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context);
int64_t attention_scratch_bytes(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, int threads);
void attention_grad(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context);
int64_t attention_grad_scratch_bytes(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                                     int threads);

}  // namespace patina
