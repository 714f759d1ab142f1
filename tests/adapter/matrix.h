// Matrices in double precision and adapters of every kind, for tests that recompute what adapters change.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapted_site.h"
#include "adapter/delta.h"
#include "base/philox.h"

namespace patina::testing {

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  double at(int64_t r, int64_t c) const { return values.at(static_cast<size_t>(r * columns + c)); }
};

template <typename Value>
Matrix matrix(int64_t rows, int64_t columns, const std::vector<Value>& values) {
  return {rows, columns, std::vector<double>(values.begin(), values.end())};
}

template <typename Entry>
Matrix build(int64_t rows, int64_t columns, Entry entry) {
  Matrix result{rows, columns, {}};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) result.values.push_back(entry(r, c));
  return result;
}

inline Matrix product(const Matrix& a, const Matrix& b) {
  return build(a.rows, b.columns, [&](int64_t r, int64_t c) {
    double sum = 0.0;
    for (int64_t k = 0; k < a.columns; ++k) sum += a.at(r, k) * b.at(k, c);
    return sum;
  });
}

inline Matrix kron(const Matrix& a, const Matrix& b) {
  return build(a.rows * b.rows, a.columns * b.columns,
               [&](int64_t r, int64_t c) { return a.at(r / b.rows, c / b.columns) * b.at(r % b.rows, c % b.columns); });
}

inline Matrix scaled(double factor, Matrix m) {
  for (double& value : m.values) value *= factor;
  return m;
}

// DoRA: magnitude * (w + delta) / |w + delta| - w, row by row.
inline Matrix with_magnitude(const Matrix& delta, const Matrix& magnitude, const Matrix& w) {
  std::vector<double> ratio;
  for (int64_t r = 0; r < delta.rows; ++r) {
    double squares = 0.0;
    for (int64_t c = 0; c < delta.columns; ++c) squares += std::pow(w.at(r, c) + delta.at(r, c), 2);
    ratio.push_back(magnitude.values.at(static_cast<size_t>(r)) / std::sqrt(squares));
  }
  return build(delta.rows, delta.columns, [&](int64_t r, int64_t c) {
    return ratio[static_cast<size_t>(r)] * (w.at(r, c) + delta.at(r, c)) - w.at(r, c);
  });
}

inline std::vector<float> numbers(int64_t count, uint32_t which) {
  const RandomStream stream(9, RandomUse::kTest, which);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

inline uint32_t seed_of(const AdaptedSite& site) {
  return static_cast<uint32_t>(site.layer + 1) * 1000 + static_cast<uint32_t>(site.site[0]) * 8;
}

// What W is in tests of a site.
inline Matrix weight_of(const AdaptedSite& site) {
  return matrix(site.out, site.in, numbers(site.out * site.in, seed_of(site) + 7));
}

inline AdaptedSite lora_site(int layer, const std::string& name, int64_t in, int64_t out, int64_t rank, float alpha,
                             bool dora = false) {
  AdaptedSite site{layer, name, in, out, {}};
  const uint32_t seed = seed_of(site);
  LoraFactors lora{rank, alpha, numbers(rank * in, seed), numbers(out * rank, seed + 1), {}};
  if (dora) {
    lora.magnitude = numbers(out, seed + 2);
    for (float& value : lora.magnitude) value = 3.0f + std::abs(value);
  }
  site.factors = lora;
  return site;
}

// out = l * k, in = m * n.
struct KronShape {
  int64_t l, k, m, n;
};
inline AdaptedSite lokr_site(int layer, const std::string& name, KronShape shape, int64_t dim, float alpha, bool low1,
                             bool low2) {
  AdaptedSite site{layer, name, shape.m * shape.n, shape.l * shape.k, {}};
  const auto factor = [&](int64_t rows, int64_t columns, bool low, uint32_t seed) {
    if (!low) return KroneckerFactor{rows, columns, numbers(rows * columns, seed), {}, {}};
    return KroneckerFactor{rows, columns, {}, numbers(rows * dim, seed), numbers(dim * columns, seed + 1)};
  };
  const uint32_t seed = seed_of(site);
  site.factors =
      LokrFactors{dim, alpha, factor(shape.l, shape.m, low1, seed), factor(shape.k, shape.n, low2, seed + 2)};
  return site;
}

// What delta_row() says, whole.
inline Matrix delta_of(const AdaptedSite& site) {
  const Matrix w = weight_of(site);
  std::vector<double> values;
  for (int64_t row = 0; row < site.out; ++row) {
    std::vector<float> weight;
    for (int64_t c = 0; c < site.in; ++c) weight.push_back(static_cast<float>(w.at(row, c)));
    std::vector<double> delta(weight.size());
    delta_row(site, row, weight, delta);
    values.insert(values.end(), delta.begin(), delta.end());
  }
  return {site.out, site.in, values};
}

// Largest difference as a part of the largest number; not a number where one is not, or shapes differ.
inline double distance(const Matrix& a, const Matrix& b) {
  if (a.rows != b.rows || a.columns != b.columns || a.values.size() != b.values.size()) return NAN;
  double most = 0.0, worst = 0.0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    most = std::max(most, std::abs(b.values[i]));
    worst += std::isnan(a.values[i] - b.values[i]) ? NAN : 0.0;
    worst = std::abs(a.values[i] - b.values[i]) > worst ? std::abs(a.values[i] - b.values[i]) : worst;
  }
  return worst / most;
}

// Norm of the difference as a part of the norm. Rounding of factors is judged by it: where the terms of an element
// cancel, no bound on their roundings bounds the largest difference.
inline double relative_norm(const Matrix& a, const Matrix& b) {
  if (a.rows != b.rows || a.columns != b.columns || a.values.size() != b.values.size()) return NAN;
  double whole = 0.0, difference = 0.0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    whole += b.values[i] * b.values[i];
    difference += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
  }
  return std::sqrt(difference / whole);
}

}  // namespace patina::testing
