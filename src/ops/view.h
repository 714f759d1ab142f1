// Views: the same storage under another shape. They cost nothing at run time.
#pragma once

#include "ir/graph.h"

namespace patina {

// The executor skips nodes of this kind; the output's strides and offset say everything.
struct View : Op {
  enum class Kind : uint8_t { kReshape, kTranspose, kColumns };
  View(Kind which, int64_t first_column) : kind(which), first(first_column) {}
  std::string_view name() const override { return "view"; }
  std::string attributes() const override;
  void gradient(GradientBuilder& builder, const Node& node) const override;

  Kind kind;
  int64_t first;  // kColumns
};

// The transpose of a rank-2 value.
ValueId transpose(Graph& graph, ValueId x, std::string_view label);
// Another shape of a dense value; the outermost extent may be symbolic only where the inner ones keep their product.
ValueId reshape(Graph& graph, ValueId x, const Extents& extents, std::string_view label);
// Columns [first, first + count) of a rank-2 value.
ValueId columns(Graph& graph, ValueId x, int64_t first, int64_t count, std::string_view label);

}  // namespace patina
