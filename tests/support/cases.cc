#include "support/cases.h"

#include <cmath>
#include <numeric>

#include "base/scalar_math.h"
#include "ops/cache_append.h"
#include "ops/copy.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "ops/mix_blocks.h"
#include "ops/modulate.h"
#include "ops/outer_product.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/row_magnitude.h"
#include "ops/squared_error.h"
#include "ops/view.h"

namespace patina {

namespace {

using Values = std::vector<ValueId>;

// An input of the op, with a gradient.
ValueId operand(CaseBuilder& b, Extent rows, int64_t width, Layout layout, double scale = 1) {
  if (layout == Layout::kStrided) return columns(b.graph, b.values({rows, width + 5}, scale), 2, width, "x");
  const ValueId zero = b.constant({rows, width}, [](int64_t) { return 0.0; });
  return add(b.graph, b.values({rows, width}, scale), zero, "x");
}

Values outputs(CaseBuilder& b) { return b.graph.nodes().back().outputs; }

Values append(CaseBuilder& b, std::shared_ptr<const Op> op, Values inputs, std::vector<Extents> extents) {
  return b.graph.node(std::move(op), std::move(inputs), std::move(extents), "y");
}

// `selected` different numbers below `rows`, in random order.
std::vector<int32_t> selection(CaseBuilder& b, int64_t rows, int64_t selected) {
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[b.below(i)]);
  all.resize(static_cast<size_t>(selected));
  return all;
}

std::vector<int32_t> random_indices(CaseBuilder& b, int64_t count, int64_t below) {
  std::vector<int32_t> indices(static_cast<size_t>(count));
  for (int32_t& index : indices) index = static_cast<int32_t>(b.below(static_cast<uint64_t>(below)));
  return indices;
}

template <typename... Args>
std::string title(Layout layout, fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...) + (layout == Layout::kStrided ? " strided" : " computed");
}

}  // namespace

OpCase add_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "add {}x{}", rows, width), [=](CaseBuilder& b) {
            const ValueId x = operand(b, b.rows(rows), width, layout), y = operand(b, b.rows(rows), width, layout);
            add(b.graph, x, y, "y");
            return outputs(b);
          }};
}

OpCase scale_by_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "scale_by {}x{}", rows, width), [=](CaseBuilder& b) {
            const ValueId x = operand(b, b.rows(rows), width, layout);
            scale_by(b.graph, x, b.constant({1}, [](int64_t) { return 0.37; }), "y");
            return outputs(b);
          }};
}

OpCase silu_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "silu {}x{}", rows, width), [=](CaseBuilder& b) {
            silu(b.graph, operand(b, b.rows(rows), width, layout, 3), "y");
            return outputs(b);
          }};
}

OpCase repeat_row_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "repeat_row {}x{}", rows, width), [=](CaseBuilder& b) {
            const ValueId like = operand(b, b.rows(rows), 1, layout);
            repeat_row(b.graph, b.frozen_vector(width), like, "y");
            return outputs(b);
          }};
}

namespace {

// Numbers without a gradient, as columns of wider rows.
ValueId side_columns(CaseBuilder& b, const Extent& rows, int64_t width) {
  return columns(b.graph, b.constant({rows, width + 3}, [&](int64_t) { return b.normal(); }), 1, width, "side");
}

}  // namespace

OpCase modulate_case(int64_t rows, int64_t width, bool shift, bool acc, Layout layout) {
  return {title(layout, "modulate {}x{}{}{}", rows, width, shift ? " shift" : "", acc ? " acc" : ""),
          [=](CaseBuilder& b) {
            constexpr int64_t kSequences = 3;
            const Extent extent = b.rows(rows), sequences = b.rows(kSequences, "B");
            const ValueId x = operand(b, extent, width, layout), factor = side_columns(b, sequences, width);
            const ValueId shifts = shift ? side_columns(b, sequences, width) : kNoValue;
            const ValueId at = b.ints({extent}, random_indices(b, rows, kSequences));
            modulate(b.graph, x, factor, shifts, acc ? operand(b, extent, width, layout) : kNoValue, at, "y");
            return outputs(b);
          }};
}

OpCase squared_error_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "squared_error {}x{}", rows, width),
          [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows);
            const ValueId y = operand(b, extent, width, layout), target = side_columns(b, extent, width);
            const ValueId weight = b.constant({extent, width}, [&](int64_t) { return std::abs(b.normal()); });
            squared_error(b.graph, y, target, weight, "y");
            return outputs(b);
          },
          width * std::max<int64_t>(rows, 1)};
}

OpCase squared_error_grad_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "squared_error_grad {}x{}", rows, width), [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows);
            const ValueId y = operand(b, extent, width, layout), target = side_columns(b, extent, width);
            const ValueId weight = b.constant({extent, width}, [&](int64_t) { return std::abs(b.normal()); });
            return append(b, std::make_shared<SquaredErrorGrad>(),
                          {y, target, weight, b.constant({1}, [](int64_t) { return 0.37; })}, {{extent, width}});
          }};
}

OpCase swiglu_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "swiglu {}x{}", rows, width), [=](CaseBuilder& b) {
            const ValueId gate = operand(b, b.rows(rows), width, layout, 3);
            swiglu(b.graph, gate, operand(b, b.rows(rows), width, layout), "y");
            return outputs(b);
          }};
}

OpCase swiglu_grad_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "swiglu_grad {}x{}", rows, width), [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows);
            const ValueId gate = operand(b, extent, width, layout, 3), up = operand(b, extent, width, layout);
            const ValueId dy = operand(b, extent, width, layout);
            return append(b, std::make_shared<SwiGluGrad>(), {gate, up, dy}, {{extent, width}, {extent, width}});
          }};
}

OpCase gather_rows_case(int64_t rows, int64_t selected, int64_t width, Layout layout) {
  return {title(layout, "gather_rows {} of {}x{}", selected, rows, width), [=](CaseBuilder& b) {
            const ValueId x = operand(b, b.rows(rows), width, layout);
            gather_rows(b.graph, x, b.ints({b.rows(selected, "M")}, selection(b, rows, selected)), "y");
            return outputs(b);
          }};
}

OpCase scatter_rows_case(int64_t rows, int64_t selected, int64_t width, Layout layout) {
  return {title(layout, "scatter_rows {} of {}x{}", selected, rows, width), [=](CaseBuilder& b) {
            const Extent all = b.rows(rows), some = b.rows(selected, "M");
            const ValueId x = operand(b, some, width, layout);
            const ValueId where = b.ints({some}, selection(b, rows, selected));
            const ValueId shape = b.constant({all, 1}, [](int64_t) { return 0.0; });
            return append(b, std::make_shared<ScatterRows>(), {x, where, shape}, {{all, width}});
          }};
}

OpCase pad_columns_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "pad_columns {}x{}", rows, width), [=](CaseBuilder& b) {
            pad_columns(b.graph, operand(b, b.rows(rows), width, layout), 3, width + 7, "y");
            return outputs(b);
          }};
}

OpCase embedding_case(DType dtype, int64_t tokens, int64_t vocabulary, int64_t width) {
  return {fmt::format("embedding {} {} of {}x{}", name(dtype), tokens, vocabulary, width), [=](CaseBuilder& b) {
            const ValueId at = b.ints({b.rows(tokens)}, random_indices(b, tokens, vocabulary));
            embedding(b.graph, at, b.frozen(dtype, vocabulary, width, true), "y");
            return outputs(b);
          }};
}

OpCase rms_norm_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "rms_norm {}x{}", rows, width),
          [=](CaseBuilder& b) {
            const ValueId x = operand(b, b.rows(rows), width, layout);
            rms_norm(b.graph, x, b.frozen_vector(width), 1e-5f, "y");
            return outputs(b);
          },
          width};
}

OpCase rms_norm_grad_case(int64_t rows, int64_t width, bool acc, Layout layout) {
  return {title(layout, "rms_norm_grad {}x{}{}", rows, width, acc ? " acc" : ""), [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows);
            const ValueId x = operand(b, extent, width, layout), w = b.frozen_vector(width);
            const ValueId rstd = b.constant({extent}, [&](int64_t) { return 0.5 + std::abs(b.normal()); });
            const ValueId dy = operand(b, extent, width, layout);
            const ValueId sum = acc ? operand(b, extent, width, layout) : kNoValue;
            return append(b, std::make_shared<RmsNormGrad>(), {x, w, rstd, dy, sum}, {{extent, width}});
          }};
}

OpCase rope_case(int64_t rows, int64_t heads, int64_t width, int64_t rotated, bool inverse, Layout layout) {
  return {title(layout, "rope {}x{}x{} of {}{}", rows, heads, rotated, width, inverse ? " inverse" : ""),
          [=](CaseBuilder& b) {
            constexpr int64_t kPositions = 9;
            const Extent extent = b.rows(rows);
            const ValueId x = operand(b, extent, heads * width, layout);
            const ValueId positions = b.ints({extent}, random_indices(b, rows, kPositions));
            const ValueId table = b.constant({kPositions, rotated}, [&](int64_t i) {
              double sine, cosine;
              exact_sincos(0.1 * static_cast<double>(1 + i / rotated) * static_cast<double>(1 + i % (rotated / 2)),
                           &sine, &cosine);
              return i % rotated < rotated / 2 ? cosine : sine;
            });
            return append(b, std::make_shared<Rope>(width, inverse), {x, positions, table}, {{extent, heads * width}});
          }};
}

OpCase cache_append_case(int64_t capacity, int64_t first, int64_t rows, int64_t width) {
  return {fmt::format("cache_append {} at {} of {}x{}", rows, first, capacity, width), [=](CaseBuilder& b) {
            const ValueId cache = b.state({capacity, width});
            const ValueId x = operand(b, b.rows(rows), width, Layout::kStrided);
            cache_append(b.graph, cache, x, b.ints({1}, {static_cast<int32_t>(first)}), "y");
            return outputs(b);
          }};
}

OpCase head_loss_case(DType dtype, int64_t rows, int64_t width, int64_t vocabulary, bool with_gradient) {
  return {fmt::format("head_loss {} {}x{} of {}{}", name(dtype), rows, width, vocabulary,
                      with_gradient ? "" : " loss only"),
          [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows, "M");
            const ValueId h = operand(b, extent, width, Layout::kComputed, 2 / std::sqrt(static_cast<double>(width)));
            const ValueId labels = b.ints({extent}, random_indices(b, rows, vocabulary));
            head_loss(b.graph, h, b.frozen(dtype, vocabulary, width), labels, with_gradient, "y");
            return outputs(b);
          },
          width + vocabulary};
}

OpCase frozen_linear_case(FrozenLinear::Direction direction, const FrozenLinearShape& shape, Layout layout) {
  const bool forward = direction == FrozenLinear::Direction::kForward;
  return {title(layout, "frozen_linear {} {} m={} n={} k={}{}{}{}", forward ? "forward" : "backward", name(shape.dtype),
                shape.m, shape.n, shape.k, shape.row_map ? " row map" : "", shape.acc ? " acc" : "",
                shape.few_rows ? " few rows" : ""),
          [=](CaseBuilder& b) {
            const Extent rows = b.rows(shape.m);
            const ValueId x = operand(b, rows, forward ? shape.k : shape.n, layout);
            const ValueId w = b.frozen(shape.dtype, shape.n, shape.k, shape.row_map);
            const ValueId acc = shape.acc ? operand(b, rows, forward ? shape.n : shape.k, layout) : kNoValue;
            if (forward)
              frozen_linear(b.graph, x, w, acc, "y", shape.few_rows);
            else
              frozen_linear_backward(b.graph, x, w, acc, "y");
            return outputs(b);
          },
          std::max(shape.n, shape.k)};
}

OpCase transposed_copy_case(DType dtype, int64_t n, int64_t k) {
  return {fmt::format("transposed_copy {} {}x{}", name(dtype), n, k), [=](CaseBuilder& b) {
            transposed_copy(b.graph, b.frozen(dtype, n, k, true), "y");
            return outputs(b);
          }};
}

OpCase f32_copy_case(DType dtype, int64_t n, int64_t k) {
  return {fmt::format("f32_copy {} {}x{}", name(dtype), n, k), [=](CaseBuilder& b) {
            f32_copy(b.graph, b.frozen(dtype, n, k, true), "y");
            return outputs(b);
          }};
}

OpCase dense_copy_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "dense_copy {}x{}", rows, width), [=](CaseBuilder& b) {
            dense_copy(b.graph, operand(b, b.rows(rows), width, layout), "y");
            return outputs(b);
          }};
}

OpCase dense_copy_of_transpose_case(int64_t rows, int64_t width, Layout layout) {
  return {title(layout, "dense_copy of a transpose {}x{}", rows, width), [=](CaseBuilder& b) {
            dense_copy(b.graph, transpose(b.graph, operand(b, width, rows, layout), "x"), "y");
            return outputs(b);
          }};
}

OpCase outer_product_case(int64_t m, int64_t n, int64_t k, bool acc, bool dy_transposed, Layout layout) {
  return {title(layout, "outer_product m={} n={} k={}{}{}", m, n, k, acc ? " acc" : "", dy_transposed ? " dy^T" : ""),
          [=](CaseBuilder& b) {
            const Extent rows = dy_transposed ? Extent(m) : b.rows(m);
            const ValueId dy =
                dy_transposed ? transpose(b.graph, operand(b, n, m, layout), "dy") : operand(b, rows, n, layout);
            const ValueId w = b.frozen(DType::kF32, n, k);
            outer_product(b.graph, dy, w, acc ? operand(b, rows, k, layout) : kNoValue, "y");
            return outputs(b);
          }};
}

OpCase matmul_case(const MatMulShape& shape, Layout layout) {
  return {title(layout, "matmul m={} n={} k={} scale={}{}{}{}", shape.m, shape.n, shape.k, shape.scale,
                shape.transposed ? " transposed" : "", shape.a_transposed ? " a transposed" : "",
                shape.acc_is_state ? " state" : ""),
          [=](CaseBuilder& b) {
            // A state's rows do not vary.
            const Extent rows = shape.a_transposed || shape.acc_is_state ? Extent(shape.m) : b.rows(shape.m);
            const ValueId a = shape.a_transposed ? transpose(b.graph, operand(b, b.rows(shape.k), shape.m, layout), "a")
                                                 : operand(b, rows, shape.k, layout);
            const ValueId right = shape.transposed     ? operand(b, shape.n, shape.k, layout)
                                  : shape.a_transposed ? operand(b, b.rows(shape.k), shape.n, layout)
                                                       : operand(b, shape.k, shape.n, layout);
            const ValueId acc = shape.acc_is_state ? b.state({shape.m, shape.n}) : operand(b, rows, shape.n, layout);
            matmul(b.graph, a, right, acc, shape.scale, shape.transposed, "y");
            return outputs(b);
          },
          std::max({shape.m, shape.n, shape.k})};
}

OpCase mix_blocks_case(const MixShape& shape, Layout layout) {
  return {title(layout, "mix_blocks {} rows of {} blocks of {} to {}{}{}", shape.rows, shape.from, shape.columns,
                shape.to, shape.transposed ? " transposed" : "", shape.acc ? " acc" : ""),
          [=](CaseBuilder& b) {
            const Extent rows = b.rows(shape.rows);
            const ValueId x = operand(b, rows, shape.from * shape.columns, layout);
            const ValueId w =
                shape.transposed ? operand(b, shape.from, shape.to, layout) : operand(b, shape.to, shape.from, layout);
            const ValueId acc = shape.acc ? operand(b, rows, shape.to * shape.columns, layout) : kNoValue;
            mix_blocks(b.graph, x, w, acc, shape.transposed, "y");
            return outputs(b);
          },
          std::max(shape.from + shape.to, shape.rows * shape.columns)};
}

OpCase mix_blocks_grad_case(const MixShape& shape, Layout layout) {
  return {title(layout, "mix_blocks_grad {} rows of {} and {} blocks of {}{}", shape.rows, shape.to, shape.from,
                shape.columns, shape.acc ? " acc" : ""),
          [=](CaseBuilder& b) {
            const Extent rows = b.rows(shape.rows);
            const ValueId left = operand(b, rows, shape.to * shape.columns, layout);
            const ValueId right = operand(b, rows, shape.from * shape.columns, layout);
            const ValueId acc = shape.acc ? b.state({shape.to, shape.from}) : kNoValue;
            return append(b, std::make_shared<MixBlocksGrad>(), {left, right, acc}, {{shape.to, shape.from}});
          }};
}

namespace {

ValueId norms(CaseBuilder& b, int64_t columns) {
  return b.constant({columns}, [&](int64_t) { return 0.5 + std::abs(b.normal()); });
}

}  // namespace

OpCase row_magnitude_case(int64_t rows, int64_t columns, bool acc, Layout layout) {
  return {title(layout, "row_magnitude {}x{}{}", rows, columns, acc ? " acc" : ""),
          [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows);
            const ValueId z = operand(b, extent, columns, layout), m = b.values({columns});
            row_magnitude(b.graph, z, m, norms(b, columns), acc ? operand(b, extent, columns, layout) : kNoValue, "y");
            return outputs(b);
          },
          rows};
}

OpCase row_magnitude_grad_case(int64_t rows, int64_t columns, bool acc, Layout layout) {
  return {title(layout, "row_magnitude_grad {}x{}{}", rows, columns, acc ? " acc" : ""), [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows);
            const ValueId z = operand(b, extent, columns, layout), m = b.values({columns}), norm = norms(b, columns);
            const ValueId dy = operand(b, extent, columns, layout);
            return append(b, std::make_shared<RowMagnitudeGrad>(),
                          {z, m, norm, dy, acc ? b.state({columns}) : kNoValue}, {{columns}, {extent, columns}});
          }};
}

OpCase adapted_row_norms_case(int64_t ranks, int64_t columns, Layout layout) {
  return {title(layout, "adapted_row_norms {}x{}", ranks, columns), [=](CaseBuilder& b) {
            const ValueId norm = b.state({columns});
            // Far enough above what the ranks can take away.
            const ValueId squares = b.constant(
                {columns}, [&](int64_t) { return (1 + std::abs(b.normal())) * 40 * static_cast<double>(ranks); });
            const ValueId wa = operand(b, ranks, columns, layout), ba = operand(b, ranks, columns, layout);
            adapted_row_norms(b.graph, norm, squares, wa, ba, operand(b, ranks, columns, layout), 0.7f, "y");
            return outputs(b);
          }};
}

OpCase dropout_case(int64_t rows, int64_t columns, bool acc, int64_t chosen, Layout layout) {
  return {title(layout, "dropout {}x{}{} {}", rows, columns, acc ? " acc" : "", chosen), [=](CaseBuilder& b) {
            const Extent all = b.rows(rows), extent = chosen > 0 ? b.rows(chosen, "M") : all;
            const ValueId x = operand(b, extent, columns, layout);
            RowPlaces places{b.ints({1}, {3}), b.ints({all}, random_indices(b, rows, 1000)),
                             b.ints({all}, random_indices(b, rows, 1000))};
            if (chosen > 0) places.rows = b.ints({extent}, selection(b, rows, chosen));
            if (!acc) {
              dropout(b.graph, x, places, 0.3, 77, 5, "y");
              return outputs(b);
            }
            return append(
                b, std::make_shared<Dropout>(0.3, 77, 5),
                {x, places.step, places.samples, places.positions, operand(b, extent, columns, layout), places.rows},
                {{extent, columns}});
          }};
}

OpCase cross_entropy_case(int64_t rows, int64_t vocabulary, bool acc, Layout layout) {
  return {title(layout, "cross_entropy {}x{}{}", rows, vocabulary, acc ? " acc" : ""),
          [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows, "M");
            const ValueId logits = operand(b, extent, vocabulary, layout, 2);
            const ValueId labels = b.ints({extent}, random_indices(b, rows, vocabulary));
            cross_entropy(b.graph, logits, labels, acc ? b.values({1}) : kNoValue, "y");
            return outputs(b);
          },
          vocabulary};
}

OpCase cross_entropy_grad_case(int64_t rows, int64_t vocabulary, Layout layout) {
  return {title(layout, "cross_entropy_grad {}x{}", rows, vocabulary), [=](CaseBuilder& b) {
            const Extent extent = b.rows(rows, "M");
            const ValueId logits = operand(b, extent, vocabulary, layout, 2);
            const ValueId labels = b.ints({extent}, random_indices(b, rows, vocabulary));
            const ValueId lse = b.constant({extent}, [&](int64_t) { return 5 + std::abs(b.normal()); });
            return append(b, std::make_shared<CrossEntropyGrad>(),
                          {logits, labels, lse, b.constant({1}, [](int64_t) { return 0.37; })}, {{extent, vocabulary}});
          }};
}

}  // namespace patina
