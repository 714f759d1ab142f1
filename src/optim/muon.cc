#include "optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace patina {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;
constexpr double kEpsilon = 1e-6;

// Sums in fixed lanes, so that the loop becomes vector instructions.
double dot(const double* __restrict x, const double* __restrict y, size_t count) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * y[i + lane];
  for (size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += x[i] * y[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

void add_scaled(double* __restrict y, const double* __restrict x, double factor, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// z [n,n] = x y.
void multiply(std::vector<double>& z, const std::vector<double>& x, const std::vector<double>& y, size_t n) {
  z.assign(n * n, 0.0);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < n; ++k) add_scaled(&z[i * n], &y[k * n], x[i * n + k], n);
}

}  // namespace

Muon::Muon(std::vector<ParameterMatrix> matrices, std::unique_ptr<AdamW> rest, const MuonOptions& options)
    : options_(options), matrices_(std::move(matrices)), rest_(std::move(rest)) {
  size_t size = 0;
  for (const ParameterMatrix& matrix : matrices_) {
    momentum_at_.push_back(size);
    size += static_cast<size_t>(matrix.rows * matrix.cols);
  }
  momentum_.resize(size);
}

std::vector<Optimizer::State> Muon::state() {
  std::vector<State> state = rest_->state();
  state.push_back({"muon.momentum", momentum_});
  return state;
}

int64_t Muon::scratch_bytes(const ParameterMatrix& matrix) {
  const int64_t n = std::min(matrix.rows, matrix.cols), length = std::max(matrix.rows, matrix.cols);
  return static_cast<int64_t>(sizeof(double)) * (n * length + length + 4 * n * n);  // as in Scratch
}

void Muon::step(std::span<float> parameters, std::span<const float> gradients, double learning_rate, ThreadPool& pool) {
  PATINA_CHECK(gradients.size() == parameters.size(), "{} parameters, {} gradients", parameters.size(),
               gradients.size());
  rest_->set_steps(steps_);
  rest_->step(parameters, gradients, learning_rate, pool);
  ++steps_;
  scratch_.resize(static_cast<size_t>(pool.size()));
  pool.run(static_cast<int64_t>(matrices_.size()), [&](int64_t index, int worker) {
    const size_t i = static_cast<size_t>(index);
    const ParameterMatrix& matrix = matrices_[i];
    update(matrix, momentum_.data() + momentum_at_[i], parameters.data() + matrix.offset,
           gradients.data() + matrix.offset, learning_rate * matrix.rate_scale, scratch_[static_cast<size_t>(worker)]);
  });
}

void Muon::update(const ParameterMatrix& matrix, float* momentum, float* parameter, const float* gradient,
                  double learning_rate, Scratch& scratch) const {
  const bool tall = matrix.rows > matrix.cols;
  const size_t rows = static_cast<size_t>(matrix.rows), cols = static_cast<size_t>(matrix.cols);
  const size_t n = std::min(rows, cols), length = std::max(rows, cols);
  std::vector<double>& u = scratch.u;  // [n, length], the transpose of a tall matrix
  u.resize(n * length);
  const float beta = static_cast<float>(options_.momentum);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) {
      float& b = momentum[r * cols + c];
      const float g = gradient[r * cols + c];
      b = beta * b + g;
      u[tall ? c * length + r : r * length + c] = static_cast<double>(g) + options_.momentum * static_cast<double>(b);
    }

  // Every iterate is a polynomial of the n x n matrix A = X X^T times X, so the iteration runs on A alone: with
  // P = a + b A + c A^2, the next X is P X and the next A is P A P. X itself is multiplied once, by all of the P.
  std::vector<double>&gram = scratch.gram, &power = scratch.power, &product = scratch.product, &next = scratch.next;
  gram.resize(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) gram[i * n + j] = gram[j * n + i] = dot(&u[i * length], &u[j * length], length);
  double squares = 0.0;
  for (size_t i = 0; i < n; ++i) squares += gram[i * n + i];
  const double inverse = 1.0 / (std::sqrt(squares) + kEpsilon);
  for (double& value : gram) value *= inverse * inverse;
  product.assign(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) product[i * n + i] = inverse;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    multiply(power, gram, gram, n);
    for (size_t i = 0; i < n * n; ++i) power[i] = kB * gram[i] + kC * power[i];
    for (size_t i = 0; i < n; ++i) power[i * n + i] += kA;
    multiply(next, power, product, n);
    product.swap(next);
    multiply(next, power, gram, n);
    multiply(gram, next, power, n);
  }

  const double keep = 1.0 - learning_rate * options_.weight_decay;
  const double rate =
      learning_rate * options_.scale * std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
  std::vector<double>& row = scratch.row;
  for (size_t i = 0; i < n; ++i) {
    row.assign(length, 0.0);
    for (size_t k = 0; k < n; ++k) add_scaled(row.data(), &u[k * length], product[i * n + k], length);
    for (size_t j = 0; j < length; ++j) {
      float& p = parameter[tall ? j * cols + i : i * cols + j];
      p = static_cast<float>(keep * static_cast<double>(p) - rate * row[j]);
    }
  }
}

}  // namespace patina
