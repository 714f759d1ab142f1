#include "ops/work.h"

#include <algorithm>

#include "ops/attention.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/mix_blocks.h"

namespace patina {

namespace {

using Tensors = std::span<const Tensor>;

double elements(const Tensor& tensor) { return static_cast<double>(tensor.shape.elements()); }

// acc + a [M,K] . b: every output is a chain of K multiply-adds.
double product(const Op&, Tensors in, Tensors out, double) {
  return 2.0 * elements(out[0]) * static_cast<double>(in[0].shape[1]);
}

// Every output is a chain over the blocks that it is mixed from; every element of dw one over all left numbers of a
// row.
double mix_blocks(const Op& op, Tensors in, Tensors out, double) {
  return 2.0 * elements(out[0]) *
         static_cast<double>(in[1].shape[static_cast<const MixBlocks&>(op).transposed ? 0 : 1]);
}
double mix_blocks_grad(const Op&, Tensors in, Tensors out, double) {
  return 2.0 * elements(in[0]) * static_cast<double>(out[0].shape[1]);
}

// With the product of an adapter's branch, left [T,R] . right, where it is joined.
double frozen_linear(const Op& op, Tensors in, Tensors out, double pairs) {
  const bool branch = static_cast<const FrozenLinear&>(op).branch.has_value();
  return product(op, in, out, pairs) + (branch ? product(op, in.subspan(3), out, pairs) : 0);
}

// Two products forward; five backward, as the scores are made again (Dao, arXiv 2307.08691).
double head_pair_operations(const AttentionSpec& spec, double products, double pairs) {
  return 2.0 * products * static_cast<double>(spec.heads * spec.width) * pairs;
}
double attention(const Op& op, Tensors, Tensors, double pairs) {
  return head_pair_operations(static_cast<const Attention&>(op).spec, 2, pairs);
}
double attention_grad(const Op& op, Tensors, Tensors, double pairs) {
  return head_pair_operations(static_cast<const AttentionGrad&>(op).spec, 5, pairs);
}

// h . W^T, and the probabilities times W.
double head_loss(const Op& op, Tensors in, Tensors, double) {
  const double products = static_cast<const HeadLoss&>(op).with_gradient ? 2 : 1;
  return 2.0 * products * elements(in[0]) * static_cast<double>(in[1].shape[0]);
}

struct Entry {
  std::string_view op;
  double (*operations)(const Op& op, Tensors in, Tensors out, double pairs);  // null: none
  int by_row = -1;  // the input of which only as many rows are read as the output has
  int unread = -1;  // the input whose shape alone is read
};
constexpr Entry kEntries[] = {
    {"attention", attention},
    {"attention_grad", attention_grad},
    {"embedding", nullptr, 1},
    {"frozen_linear", frozen_linear},
    {"gather_rows", nullptr, 0},
    {"head_loss", head_loss},
    {"matmul", product},
    {"mix_blocks", mix_blocks},
    {"mix_blocks_grad", mix_blocks_grad},
    {"outer_product", product},
    {"modulate", nullptr, 1},
    {"repeat_row", nullptr, -1, 1},
    {"rope", nullptr, 2},
    {"scatter_rows", nullptr, -1, 2},
};

double row_bytes(const Tensor& tensor) {
  const int64_t columns = tensor.shape.rank() > 1 ? tensor.shape[1] : 1;
  return static_cast<double>(bytes_of(tensor.dtype, columns));
}
double bytes(const Tensor& tensor) { return row_bytes(tensor) * static_cast<double>(tensor.shape[0]); }

double pairs_of(const AttentionSpec& spec, Tensors in) {
  const int32_t *q_offsets = in[3].i32(), *kv_offsets = in[4].i32(), *first = in[5].i32();
  int64_t pairs = 0;
  for (int64_t b = 0; b + 1 < in[3].shape[0]; ++b) {
    const int64_t keys = kv_offsets[b + 1] - kv_offsets[b];
    for (int64_t i = 0; i < q_offsets[b + 1] - q_offsets[b]; ++i) {
      const int64_t position = first[b] + i;
      const bool window = spec.mask == AttentionSpec::Mask::kWindow;
      const int64_t begin = window ? std::max<int64_t>(0, position - spec.window) : 0;
      const int64_t end = spec.mask == AttentionSpec::Mask::kNone ? keys : position + (window ? spec.window : 0) + 1;
      pairs += std::max<int64_t>(0, std::min(keys, end) - begin);
    }
  }
  return static_cast<double>(pairs);
}

}  // namespace

double visible_pairs(const Op& op, std::span<const Tensor> in) {
  if (op.name() == "attention") return pairs_of(static_cast<const Attention&>(op).spec, in);
  if (op.name() == "attention_grad") return pairs_of(static_cast<const AttentionGrad&>(op).spec, in);
  return 0;
}

Work work_of(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, double pairs) {
  const Entry* found = std::ranges::find(kEntries, op.name(), &Entry::op);
  const Entry entry = found == std::end(kEntries) ? Entry{op.name(), nullptr} : *found;
  Work work;
  if (entry.operations != nullptr) work.operations = entry.operations(op, in, out, pairs);
  for (int i = 0; i < static_cast<int>(in.size()); ++i) {
    const Tensor& input = in[static_cast<size_t>(i)];
    if (i == entry.unread || input.shape.rank() == 0) continue;  // the second: an optional input that is absent
    work.bytes += i == entry.by_row ? row_bytes(input) * static_cast<double>(out[0].shape[0]) : bytes(input);
  }
  for (const Tensor& output : out) work.bytes += bytes(output);
  return work;
}

}  // namespace patina
