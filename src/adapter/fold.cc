#include "adapter/fold.h"

#include "base/error.h"

namespace patina {
namespace {

struct Matrix {
  int64_t rows, columns;
  std::vector<float> values;
};

Matrix unit(int64_t size) {
  Matrix matrix{size, size, std::vector<float>(static_cast<size_t>(size * size))};
  for (int64_t i = 0; i < size; ++i) matrix.values[static_cast<size_t>(i * size + i)] = 1.0f;
  return matrix;
}

Matrix kron(const Matrix& p, const Matrix& q) {
  Matrix product{p.rows * q.rows, p.columns * q.columns, {}};
  product.values.reserve(static_cast<size_t>(product.rows * product.columns));
  for (int64_t row = 0; row < product.rows; ++row)
    for (int64_t column = 0; column < product.columns; ++column)
      product.values.push_back(p.values[static_cast<size_t>(row / q.rows * p.columns + column / q.columns)] *
                               q.values[static_cast<size_t>(row % q.rows * q.columns + column % q.columns)]);
  return product;
}

// The two matrices that a factor is the product of.
std::pair<Matrix, Matrix> split(const KroneckerFactor& factor, int64_t dim) {
  if (!factor.is_whole()) return {{factor.rows, dim, factor.a}, {dim, factor.columns, factor.b}};
  Matrix whole{factor.rows, factor.columns, factor.whole};
  if (factor.columns <= factor.rows) return {std::move(whole), unit(factor.columns)};
  return {unit(factor.rows), std::move(whole)};
}

}  // namespace

LoraFactors lora_from_lokr(const LokrFactors& lokr) {
  PATINA_CHECK(!lokr.w2.is_whole(), "w2 [{}, {}] is whole", lokr.w2.rows, lokr.w2.columns);
  const auto [left1, right1] = split(lokr.w1, lokr.dim);
  const auto [left2, right2] = split(lokr.w2, lokr.dim);
  Matrix b = kron(left1, left2), a = kron(right1, right2);
  const int64_t rank = a.rows;
  // alpha / dim = (alpha * (rank / dim)) / rank, and dim divides rank.
  return {rank, lokr.alpha * static_cast<float>(rank / lokr.dim), std::move(a.values), std::move(b.values), {}};
}

}  // namespace patina
