#include "measure/parity.h"

#include <algorithm>
#include <cmath>

#include "quant/decode.h"

namespace patina {

namespace {

constexpr int64_t kRows = 8, kTaskRows = 64, kTaskColumns = 256;  // columns: whole blocks of every type
constexpr double kUnitRoundoff = 0x1p-24, kMargin = 2;

double squares(std::span<const double> numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return sum;
}

// y [R,N] = x [R,K] . W^T for the rows [begin, end) of W; returns the sum of their squares.
double forward(std::span<const double> x, const Tensor& weight, int64_t begin, int64_t end, double* y) {
  const int64_t n = weight.shape[0], k = weight.shape[1], rows = static_cast<int64_t>(x.size()) / k;
  const DecodeRow decode = decode_row(weight.dtype);
  std::vector<float> row(static_cast<size_t>(k));
  double sum_of_squares = 0;
  for (int64_t j = begin; j < end; ++j) {
    decode(weight.row(j), 0, k, row.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sums[8] = {};  // independent, for the compiler's sake
      const double* const from = x.data() + r * k;
      int64_t i = 0;
      for (; i + 8 <= k; i += 8)
        for (int64_t s = 0; s < 8; ++s) sums[s] += from[i + s] * static_cast<double>(row[static_cast<size_t>(i + s)]);
      for (; i < k; ++i) sums[0] += from[i] * static_cast<double>(row[static_cast<size_t>(i)]);
      y[r * n + j] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (const float value : row) sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum_of_squares;
}

// dx [R,K] = dy [R,N] . W for the columns [begin, end) of W; returns the sum of their squares.
double backward(std::span<const double> dy, const Tensor& weight, int64_t begin, int64_t end, double* dx) {
  const int64_t n = weight.shape[0], k = weight.shape[1], rows = static_cast<int64_t>(dy.size()) / n;
  const DecodeRow decode = decode_row(weight.dtype);
  std::vector<float> part(static_cast<size_t>(end - begin));
  double sum_of_squares = 0;
  for (int64_t j = 0; j < n; ++j) {
    decode(weight.row(j), begin, end - begin, part.data());
    for (int64_t r = 0; r < rows; ++r) {
      const double factor = dy[static_cast<size_t>(r * n + j)];
      double* const to = dx + r * k + begin;
      for (size_t i = 0; i < part.size(); ++i) to[i] += factor * static_cast<double>(part[i]);
    }
    for (const float value : part) sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum_of_squares;
}

}  // namespace

Parity compare_with_exact(std::span<const double> got, std::span<const double> exact, double bound) {
  PATINA_CHECK(got.size() == exact.size(), "{} values for {}", got.size(), exact.size());
  double errors = 0, inner = 0, largest_error = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - exact[i]);
    errors += error * error;
    inner += got[i] * exact[i];
    if (!(error <= largest_error) && !std::isnan(largest_error)) largest_error = error;  // NaN stays
    largest = std::max(largest, std::abs(exact[i]));
  }
  const double norm = squares(exact);
  return {inner / std::sqrt(norm * squares(got)), largest_error / largest, std::sqrt(errors / norm), bound};
}

std::vector<int64_t> compared_rows(int64_t rows) {
  std::vector<int64_t> chosen;
  const int64_t count = std::min(rows, kRows);
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (rows - 1) / (count - 1));
  return chosen;
}

std::vector<double> rows_of(const Tensor& tensor, std::span<const int64_t> rows) {
  PATINA_CHECK(tensor.contiguous(), "strided tensor");
  std::vector<double> numbers;
  for (const int64_t r : rows) {
    const float* const row = tensor.f32() + r * tensor.shape[1];
    numbers.insert(numbers.end(), row, row + tensor.shape[1]);
  }
  return numbers;
}

ExactProduct exact_product(std::span<const double> x, const Tensor& weight, FrozenLinear::Direction direction,
                           ThreadPool& pool) {
  const bool is_forward = direction == FrozenLinear::Direction::kForward;
  const int64_t in = weight.shape[is_forward ? 1 : 0], out = weight.shape[is_forward ? 0 : 1];
  ExactProduct exact;
  exact.values.resize(x.size() / static_cast<size_t>(in) * static_cast<size_t>(out));
  const int64_t step = is_forward ? kTaskRows : kTaskColumns;
  std::vector<double> parts(static_cast<size_t>((out + step - 1) / step));
  pool.run(static_cast<int64_t>(parts.size()), [&](int64_t task, int) {
    parts[static_cast<size_t>(task)] = (is_forward ? forward : backward)(
        x, weight, task * step, std::min(out, (task + 1) * step), exact.values.data());
  });
  double weight_squares = 0;
  for (const double part : parts) weight_squares += part;
  exact.bound = kMargin * kUnitRoundoff * std::sqrt(squares(x) * weight_squares / squares(exact.values));
  return exact;
}

}  // namespace patina
