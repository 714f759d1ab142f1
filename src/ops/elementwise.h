// Ops that touch each element about once: sums, SwiGLU, repeated and gathered rows, padding. All take rank-2 values
// whose columns are dense (stride 1); rows may have any stride.
#pragma once

#include "ir/graph.h"

namespace patina {

// y = a + b, same shape. May work in place on a.
struct Add : Op {
  std::string_view name() const override { return "add"; }
  int in_place_input() const override { return 0; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
ValueId add(Graph& graph, ValueId a, ValueId b, std::string_view label);

// y [T,D] = x [T,D] * factor [1]; the factor gets no gradient. May work in place on x.
struct ScaleBy : Op {
  std::string_view name() const override { return "scale_by"; }
  int in_place_input() const override { return 0; }
};
ValueId scale_by(Graph& graph, ValueId x, ValueId factor, std::string_view label);

// y [T,F] = silu(gate [T,F]) * up [T,F], silu(z) = z / (1 + exp(-z)) (Shazeer, arXiv 2002.05202).
struct SwiGlu : Op {
  std::string_view name() const override { return "swiglu"; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
// (gate, up, dy) -> dgate, dup. May write dgate over gate.
struct SwiGluGrad : Op {
  std::string_view name() const override { return "swiglu_grad"; }
  int in_place_input() const override { return 0; }
};
ValueId swiglu(Graph& graph, ValueId gate, ValueId up, std::string_view label);

// y [T,D] = silu(x [T,D]). No gradient: it stands in what only inputs and frozen weights make.
struct Silu : Op {
  std::string_view name() const override { return "silu"; }
  int in_place_input() const override { return 0; }
};
ValueId silu(Graph& graph, ValueId x, std::string_view label);

// y [T,D] = w [D] in every row; w gets no gradient. Second input: any value whose first extent is T (its shape is read,
// its numbers are not).
struct RepeatRow : Op {
  std::string_view name() const override { return "repeat_row"; }
};
ValueId repeat_row(Graph& graph, ValueId w, ValueId rows_like, std::string_view label);

// y [M,D] = x [T,D] at rows [M] (int32, each in [0, T), each at most once).
struct GatherRows : Op {
  std::string_view name() const override { return "gather_rows"; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
// y [T,D]: row rows[m] = x [M,D] row m, all other rows 0. Third input: any value whose first extent is T (its shape is
// read, its numbers are not).
struct ScatterRows : Op {
  std::string_view name() const override { return "scatter_rows"; }
};
ValueId gather_rows(Graph& graph, ValueId x, ValueId rows, std::string_view label);

// y [T,N] = x [T,n] at columns [first, first + n), 0 elsewhere: the gradient of a column slice.
struct PadColumns : Op {
  explicit PadColumns(int64_t first_column) : first(first_column) {}
  std::string_view name() const override { return "pad_columns"; }
  std::string attributes() const override { return fmt::format("first={}", first); }
  int64_t first;
};
ValueId pad_columns(Graph& graph, ValueId x, int64_t first, int64_t columns, std::string_view label);

}  // namespace patina
