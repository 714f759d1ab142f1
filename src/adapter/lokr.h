// LoKr: a change of the weight that is a Kronecker product, by the rule of LyCORIS (Yeh et al., arXiv 2309.14859).
#pragma once

#include <cstdint>
#include <utility>

#include "adapter/adapted_site.h"

namespace patina {

// The pair of factors that a width is split into, the smaller first: (factor, width / factor) where factor > 0 divides
// the width; otherwise the largest divisor that is at most `factor` (any where factor is -1) and at most sqrt(width).
std::pair<int64_t, int64_t> lokr_factor_pair(int64_t width, int64_t factor);

// A factor of a Kronecker product [rows, columns] without its numbers; rank 0: whole.
struct LokrFactorShape {
  int64_t rows, columns, rank;
  int64_t parameters() const { return rank == 0 ? rows * columns : rank * (rows + columns); }
};
struct LokrShape {
  int64_t dim;
  float alpha;
  LokrFactorShape w1, w2;  // [l,m], [k,n] of W [l*k, m*n]
  float scale() const { return w1.rank == 0 && w2.rank == 0 ? 1.0f : alpha / static_cast<float>(dim); }
  int64_t parameters() const { return w1.parameters() + w2.parameters(); }
};

// Of a fresh adapter of W [out,in]: (l, k) is the pair of out, (m, n) that of in. w2 is low-rank where dim < max(k, n)
// / 2; w1 where decompose_both and dim < max(l, m) / 2. Where both are whole, alpha becomes dim.
LokrShape lokr_shape(int64_t out, int64_t in, int64_t dim, float alpha, int64_t factor, bool decompose_both);
LokrShape lokr_shape(const LokrFactors& factors);

}  // namespace patina
