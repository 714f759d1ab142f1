#include "selftest/plain.h"

#include <cmath>

#include "quant/decode.h"

namespace patina {

namespace {

using Numbers = std::vector<double>;

// a [m,n] b [n,p]; of a factor that is whole, itself.
std::vector<double> joined(const KroneckerFactor& factor) {
  if (factor.is_whole()) return {factor.whole.begin(), factor.whole.end()};
  const int64_t inner = std::ssize(factor.a) / factor.rows;
  std::vector<double> product(static_cast<size_t>(factor.rows * factor.columns));
  for (int64_t r = 0; r < factor.rows; ++r)
    for (int64_t i = 0; i < inner; ++i)
      for (int64_t c = 0; c < factor.columns; ++c)
        product[static_cast<size_t>(r * factor.columns + c)] +=
            static_cast<double>(factor.a[static_cast<size_t>(r * inner + i)]) *
            static_cast<double>(factor.b[static_cast<size_t>(i * factor.columns + c)]);
  return product;
}

void add_lora(std::vector<double>& weight, const LoraFactors& lora, int64_t out, int64_t in) {
  const double scale = static_cast<double>(lora.alpha) / static_cast<double>(lora.rank);
  for (int64_t o = 0; o < out; ++o) {
    double* const row = &weight[static_cast<size_t>(o * in)];
    for (int64_t r = 0; r < lora.rank; ++r)
      for (int64_t i = 0; i < in; ++i)
        row[i] += scale * static_cast<double>(lora.b[static_cast<size_t>(o * lora.rank + r)]) *
                  static_cast<double>(lora.a[static_cast<size_t>(r * in + i)]);
    if (lora.magnitude.empty()) continue;
    double squares = 0;
    for (int64_t i = 0; i < in; ++i) squares += row[i] * row[i];
    for (int64_t i = 0; i < in; ++i)
      row[i] *= static_cast<double>(lora.magnitude[static_cast<size_t>(o)]) / std::sqrt(squares);
  }
}

void add_lokr(std::vector<double>& weight, const LokrFactors& lokr, int64_t in) {
  const bool whole = lokr.w1.is_whole() && lokr.w2.is_whole();
  const double scale = whole ? 1.0 : static_cast<double>(lokr.alpha) / static_cast<double>(lokr.dim);
  const std::vector<double> w1 = joined(lokr.w1), w2 = joined(lokr.w2);
  const int64_t l = lokr.w1.rows, m = lokr.w1.columns, k = lokr.w2.rows, n = lokr.w2.columns;
  for (int64_t i = 0; i < l; ++i)
    for (int64_t a = 0; a < k; ++a)
      for (int64_t j = 0; j < m; ++j)
        for (int64_t b = 0; b < n; ++b)
          weight[static_cast<size_t>((i * k + a) * in + j * n + b)] +=
              scale * w1[static_cast<size_t>(i * m + j)] * w2[static_cast<size_t>(a * n + b)];
}

}  // namespace

void add_adapter(std::vector<double>& weight, const AdaptedSite& site) {
  if (const auto* const lokr = std::get_if<LokrFactors>(&site.factors)) return add_lokr(weight, *lokr, site.in);
  add_lora(weight, std::get<LoraFactors>(site.factors), site.out, site.in);
}

std::vector<double> decoded_matrix(const Tensor& weight) {
  const int64_t columns = weight.shape[1];
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<double> numbers;
  for (int64_t r = 0; r < weight.shape[0]; ++r) {
    decode_row(weight.dtype)(weight.row(r), 0, columns, row.data());
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  return numbers;
}

std::vector<double> plain_product(const Numbers& x, const Numbers& weight, int64_t in) {
  const int64_t rows = std::ssize(x) / in, out = std::ssize(weight) / in;
  Numbers y(static_cast<size_t>(rows * out));
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t o = 0; o < out; ++o) {
      const double *const a = &x[static_cast<size_t>(t * in)], *const b = &weight[static_cast<size_t>(o * in)];
      double sums[4] = {};
      for (int64_t i = 0; i < in; i += 4)
        for (int64_t s = 0; s < 4; ++s) sums[s] += a[i + s] * b[i + s];
      y[static_cast<size_t>(t * out + o)] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  return y;
}

std::vector<double> plain_norm(const Numbers& x, const Numbers& scale, double epsilon) {
  const int64_t width = std::ssize(scale);
  Numbers y(x.size());
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(width)) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += x[row + static_cast<size_t>(i)] * x[row + static_cast<size_t>(i)];
    const double root = std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (int64_t i = 0; i < width; ++i)
      y[row + static_cast<size_t>(i)] = x[row + static_cast<size_t>(i)] / root * scale[static_cast<size_t>(i)];
  }
  return y;
}

void plain_rotate(Numbers& x, int64_t heads, int64_t width, double base) {
  const int64_t half = width / 2;
  const int64_t rows = std::ssize(x) / (heads * width);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        double &a = x[static_cast<size_t>((t * heads + h) * width + i)],
               &b = x[static_cast<size_t>((t * heads + h) * width + i + half)];
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = first;
      }
}

std::vector<double> plain_attention(const Numbers& q, const Numbers& k, const Numbers& v, const PlainHeads& shape,
                                    FunctionRef<bool(int64_t row, int64_t column)> visible) {
  const auto [heads, kv, width] = shape;
  const int64_t rows = std::ssize(q) / (heads * width), columns = std::ssize(k) / (kv * width);
  Numbers y(q.size());
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t g = h / (heads / kv);
    for (int64_t t = 0; t < rows; ++t) {
      Numbers weights(static_cast<size_t>(columns));
      double total = 0;
      for (int64_t s = 0; s < columns; ++s) {
        if (!visible(t, s)) continue;
        double score = 0;
        for (int64_t c = 0; c < width; ++c)
          score +=
              q[static_cast<size_t>((t * heads + h) * width + c)] * k[static_cast<size_t>((s * kv + g) * width + c)];
        weights[static_cast<size_t>(s)] = std::exp(score / std::sqrt(static_cast<double>(width)));
        total += weights[static_cast<size_t>(s)];
      }
      for (int64_t s = 0; s < columns; ++s)
        for (int64_t c = 0; c < width; ++c)
          y[static_cast<size_t>((t * heads + h) * width + c)] +=
              weights[static_cast<size_t>(s)] / total * v[static_cast<size_t>((s * kv + g) * width + c)];
    }
  }
  return y;
}

void plain_swiglu(Numbers& gate, const Numbers& up) {
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
}

}  // namespace patina
