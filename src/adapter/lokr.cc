#include "adapter/lokr.h"

#include <algorithm>
#include <cmath>

#include "adapter/branch.h"
#include "base/philox.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"
#include "ops/mix_blocks.h"
#include "ops/view.h"

namespace patina {

std::pair<int64_t, int64_t> lokr_factor_pair(int64_t width, int64_t factor) {
  int64_t part = 1;
  if (factor > 0 && width % factor == 0) {
    part = factor;
  } else {
    for (int64_t divisor = 2; divisor <= width / divisor && (factor < 0 || divisor <= factor); ++divisor)
      if (width % divisor == 0) part = divisor;
  }
  return {std::min(part, width / part), std::max(part, width / part)};
}

LokrShape lokr_shape(int64_t out, int64_t in, int64_t dim, float alpha, int64_t factor, bool decompose_both) {
  const auto [l, k] = lokr_factor_pair(out, factor);
  const auto [m, n] = lokr_factor_pair(in, factor);
  const auto factor_shape = [&](int64_t rows, int64_t columns, bool may_be_low_rank) {
    return LokrFactorShape{rows, columns, may_be_low_rank && 2 * dim < std::max(rows, columns) ? dim : 0};
  };
  LokrShape shape{dim, alpha, factor_shape(l, m, decompose_both), factor_shape(k, n, true)};
  if (shape.w1.rank == 0 && shape.w2.rank == 0) shape.alpha = static_cast<float>(dim);
  return shape;
}

LokrShape lokr_shape(const LokrFactors& factors) {
  const auto factor_shape = [](const KroneckerFactor& factor) {
    const int64_t rank = factor.is_whole() ? 0 : static_cast<int64_t>(factor.b.size()) / factor.columns;
    return LokrFactorShape{factor.rows, factor.columns, rank};
  };
  return {factors.dim, factors.alpha, factor_shape(factors.w1), factor_shape(factors.w2)};
}

namespace {

// The outermost extent times `count`, which may be a symbol's multiple.
Extent times(const Extent& extent, int64_t count) {
  Extent product = extent;
  product.size *= count;
  return product;
}

// Rows [T, count * width] as rows [T * count, width], and back.
ValueId split_rows(Graph& graph, ValueId x, int64_t count, int64_t width, std::string_view label) {
  return count == 1 ? x : reshape(graph, x, {times(graph.value(x).extents[0], count), width}, label);
}
ValueId join_rows(Graph& graph, ValueId x, const Extent& rows, int64_t columns, std::string_view label) {
  return graph.value(x).extents == Extents{rows, columns} ? x : reshape(graph, x, {rows, columns}, label);
}

// kron(w1 [l,m], w2 [k,n]) x, never built: a row of x is m blocks of n columns; w2 works inside the blocks, w1 across
// them, in the order of the fewest operations. Low-rank w2 = a b has w1 work between the two, on `rank` columns.
class LokrBranch final : public Branch {
 public:
  LokrBranch(const Site& site, ParameterStore& store, const LokrShape& shape)
      : Branch(site, store),
        shape_(shape),
        w1_(add_factor("lokr_w1", shape.w1)),
        w2_(add_factor("lokr_w2", shape.w2)) {}

  // As LyCORIS begins: each matrix uniform in +-1/sqrt(columns) (Kaiming's with a = sqrt(5)), but w2, or its b, zero.
  void initialise(uint64_t seed) override {
    draw(w1_.first, seed);
    if (shape_.w1.rank > 0) draw(w1_.b, seed);
    if (shape_.w2.rank > 0) draw(w2_.first, seed);
  }

  void load(const Factors& factors) override {
    const auto& lokr = std::get<LokrFactors>(factors);
    load_factor(w1_, lokr.w1);
    load_factor(w2_, lokr.w2);
  }

  Factors factors() const override {
    return LokrFactors{shape_.dim, shape_.alpha, copy_factor(w1_, shape_.w1), copy_factor(w2_, shape_.w2)};
  }

  ValueId linear(Graph& graph, const FrozenProduct& product) override {
    const std::string &label = product.label, first = label + ".lokr_w1", second = label + ".lokr_w2";
    const ValueId frozen = frozen_linear(graph, product.x, product.weight, product.acc, label, product.few_rows);
    const ValueId x = input(graph, product), w1 = whole(graph, w1_, first);
    const int64_t l = shape_.w1.rows, m = shape_.w1.columns, k = shape_.w2.rows, n = shape_.w2.columns,
                  r = shape_.w2.rank;
    const Extent rows = graph.value(x).extents[0];
    // Multiply-adds a token.
    const int64_t w1_last = m * n * k + l * m * k, w1_first = l * m * n + l * n * k,
                  w1_between = m * n * r + l * m * r + l * r * k;
    if (r == 0 || w1_between > std::min(w1_first, w1_last)) {
      const ValueId w2 = whole(graph, w2_, second);
      if (w1_last < w1_first) {
        const ValueId u = matmul(graph, split_rows(graph, x, m, n, second), w2, kNoValue, shape_.scale(), true, second);
        return mix_blocks(graph, join_rows(graph, u, rows, m * k, first), w1, frozen, false, first);
      }
      const ValueId v = mix_blocks(graph, x, w1, kNoValue, false, first);
      return add_blocks(graph, v, n, w2, frozen, second);
    }
    const ValueId h =
        matmul(graph, split_rows(graph, x, m, n, second), trainable(graph, w2_.b), kNoValue, 1.0f, true, second + "_b");
    const ValueId v = mix_blocks(graph, join_rows(graph, h, rows, m * r, first), w1, kNoValue, false, first);
    return add_blocks(graph, v, r, trainable(graph, w2_.first), frozen, second + "_a");
  }

 private:
  struct FactorSlices {
    size_t first;  // the whole factor, or its a
    size_t b;      // of a low-rank factor
  };

  FactorSlices add_factor(const std::string& name, const LokrFactorShape& shape) {
    if (shape.rank == 0) return {add_slice(name, {shape.rows, shape.columns}), 0};
    const size_t a = add_slice(name + "_a", {shape.rows, shape.rank});
    return {a, add_slice(name + "_b", {shape.rank, shape.columns})};
  }
  void load_factor(const FactorSlices& slices, const KroneckerFactor& factor) {
    load_slice(slices.first, factor.is_whole() ? factor.whole : factor.a);
    if (!factor.is_whole()) load_slice(slices.b, factor.b);
  }
  KroneckerFactor copy_factor(const FactorSlices& slices, const LokrFactorShape& shape) const {
    if (shape.rank == 0) return {shape.rows, shape.columns, copy(slices.first), {}, {}};
    return {shape.rows, shape.columns, {}, copy(slices.first), copy(slices.b)};
  }
  // A random stream for each matrix, by its own name.
  void draw(size_t slice, uint64_t seed) {
    const ParameterStore::Slice& where = store_.slices()[slice];
    const RandomStream stream(seed, RandomUse::kInitialise, stream_of(where.name));
    const double bound = 1.0 / std::sqrt(static_cast<double>(where.shape[1]));
    for (int64_t i = 0; i < where.shape.elements(); ++i)
      store_.value(slice)[i] = static_cast<float>(bound * (2.0 * stream.uniform(static_cast<uint64_t>(i)) - 1.0));
  }

  ValueId whole(Graph& graph, const FactorSlices& factor, const std::string& label) {
    const ValueId first = trainable(graph, factor.first);
    return factor.b == 0 ? first : matmul(graph, first, trainable(graph, factor.b), kNoValue, 1.0f, false, label);
  }

  // frozen [T, l*k] + scale * the blocks of v [T, l*columns] by w [k, columns].
  ValueId add_blocks(Graph& graph, ValueId v, int64_t columns, ValueId w, ValueId frozen, const std::string& label) {
    const int64_t l = shape_.w1.rows, k = shape_.w2.rows;
    const ValueId y = matmul(graph, split_rows(graph, v, l, columns, label), w, split_rows(graph, frozen, l, k, label),
                             shape_.scale(), true, label);
    return join_rows(graph, y, graph.value(frozen).extents[0], l * k, label);
  }

  const LokrShape shape_;
  const FactorSlices w1_, w2_;
};

}  // namespace

std::unique_ptr<Branch> make_lokr(const Site& site, ParameterStore& store, const LokrShape& shape) {
  return std::make_unique<LokrBranch>(site, store, shape);
}

}  // namespace patina
