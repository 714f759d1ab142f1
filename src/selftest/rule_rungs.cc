// Rungs on rules that need no model: optimizers, clipping, the learning rate, LoKr's factors.
#include <algorithm>
#include <array>
#include <cmath>

#include "selftest/lokr_rule.h"
#include "selftest/measures.h"
#include "selftest/tables.h"
#include "selftest/trial.h"

namespace patina {

namespace {

using Measured = std::vector<double>;

// Parameters of several shapes, and gradients of scales that differ by 10^10.
struct Exercise {
  struct Parameter {
    int64_t rows, columns;
    double gradient_scale;
  };
  static constexpr std::array<Parameter, 6> kParameters = {
      {{16, 40, 1e-6}, {48, 16, 1e4}, {32, 32, 1.0}, {4, 64, 1e-3}, {64, 4, 10.0}, {17, 33, 1e2}}};
  static constexpr int kSteps = 12;

  Exercise() {
    for (size_t i = 0; i < kParameters.size(); ++i)
      store.add(fmt::format("layers.{}.q.{}", i / 2, i % 2 == 0 ? "lora_a" : "lora_b"),
                {kParameters[i].rows, kParameters[i].columns});
    store.allocate();
    store.allocate_gradients();
    for (size_t i = 0; i < kParameters.size(); ++i) put(store.value(i), i, 1000, 0.1);
  }
  void draw_gradients(int step) {
    for (size_t i = 0; i < kParameters.size(); ++i)
      put(store.gradient(i), i, static_cast<uint32_t>(10 * step), kParameters[i].gradient_scale);
  }
  std::vector<double> values(size_t i) const { return numbers(store.value(i), i); }
  std::vector<double> gradients(size_t i) { return numbers(store.gradient(i), i); }

  ParameterStore store;

 private:
  static int64_t count(size_t i) { return kParameters[i].rows * kParameters[i].columns; }
  static void put(float* to, size_t i, uint32_t stream, double scale) {
    const std::vector<double> normals = random_normals(count(i), stream + static_cast<uint32_t>(i));
    for (size_t j = 0; j < normals.size(); ++j) to[j] = static_cast<float>(scale * normals[j]);
  }
  static std::vector<double> numbers(const float* from, size_t i) {
    return as_doubles({from, static_cast<size_t>(count(i))});
  }
};

constexpr double kRate = 3e-3, kDecay = 0.1, kRatio = 4.0;

// --- T11: AdamW by its formula, and clipping ---

struct PlainAdamW {
  std::vector<double> p, m, v;
  void step(std::span<const double> g, double rate, int t) {
    constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
    m.resize(p.size());
    v.resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g[i];
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(kBeta1, t)), square = v[i] / (1 - std::pow(kBeta2, t));
      p[i] -= rate * kDecay * p[i];
      p[i] -= rate * mean / (std::sqrt(square) + kEpsilon);
    }
  }
};

// Every other step is one whose gradient is above the largest norm.
Measured measure_adamw(RungContext& context) {
  constexpr double kLargestNorm = 1.0;
  Exercise exercise;
  const auto optimizer =
      context.parts.make_optimizer(exercise.store, {.weight_decay = kDecay, .lora_plus_ratio = kRatio});
  std::array<PlainAdamW, Exercise::kParameters.size()> plain;
  for (size_t i = 0; i < plain.size(); ++i) plain[i].p = exercise.values(i);
  for (int step = 1; step <= Exercise::kSteps; ++step) {
    exercise.draw_gradients(step);
    const double limit = step % 2 == 0 ? kLargestNorm : 1e9;
    double squares = 0;
    for (size_t i = 0; i < plain.size(); ++i)
      for (const double g : exercise.gradients(i)) squares += g * g;
    const double scale = std::min(1.0, limit / std::sqrt(squares));
    for (size_t i = 0; i < plain.size(); ++i) {
      std::vector<double> g = exercise.gradients(i);
      for (double& value : g) value *= scale;
      plain[i].step(g, kRate * (i % 2 == 0 ? 1.0 : kRatio), step);
    }
    const double norm = global_norm(exercise.store.gradients(), context.pool);
    context.parts.clip(exercise.store.gradients(), norm, limit, context.pool);
    optimizer->step(exercise.store.values(), exercise.store.gradients(), kRate, context.pool);
  }
  double worst = 0;
  for (size_t i = 0; i < plain.size(); ++i) worst = larger(worst, relative_error(exercise.values(i), plain[i].p));
  return {worst};
}

// --- MU1: Muon by its formula ---

using Matrix = std::vector<double>;

Matrix times(const Matrix& a, const Matrix& b, int64_t m, int64_t n, int64_t p) {  // [m,n] [n,p]
  Matrix c(static_cast<size_t>(m * p));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < p; ++j)
        c[static_cast<size_t>(i * p + j)] += a[static_cast<size_t>(i * n + k)] * b[static_cast<size_t>(k * p + j)];
  return c;
}
Matrix transposed(const Matrix& a, int64_t m, int64_t n) {
  Matrix c(a.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[static_cast<size_t>(j * m + i)] = a[static_cast<size_t>(i * n + j)];
  return c;
}

// X of u [m,n], whose rows are no more than its columns.
Matrix near_orthogonal(Matrix x, int64_t m, int64_t n) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares) + 1e-6;
  for (int iteration = 0; iteration < 5; ++iteration) {
    const Matrix a = times(x, transposed(x, m, n), m, n, m), aa = times(a, a, m, m, m);
    Matrix p(a.size());
    for (size_t i = 0; i < p.size(); ++i) p[i] = -4.7750 * a[i] + 2.0315 * aa[i];
    const Matrix px = times(p, x, m, m, n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + px[i];
  }
  return x;
}

// How far the singular values of x [m,n] are from 1, at least and at most: from the Rayleigh quotients of X X^T, whose
// largest and smallest are found by the power method.
double orthogonality_error(const Matrix& x, int64_t m, int64_t n) {
  Matrix gram = times(x, transposed(x, m, n), m, n, m);
  const auto largest_eigenvalue = [&](const Matrix& matrix) {
    Matrix v(static_cast<size_t>(m), 1.0);
    for (size_t i = 0; i < v.size(); ++i) v[i] += 0.1 * static_cast<double>(i % 7);
    double value = 0;
    for (int iteration = 0; iteration < 200; ++iteration) {
      Matrix next = times(matrix, v, m, m, 1);
      double squares = 0;
      for (const double e : next) squares += e * e;
      value = std::sqrt(squares);
      for (size_t i = 0; i < v.size(); ++i) v[i] = next[i] / value;
    }
    return value;
  };
  const double most = largest_eigenvalue(gram);
  for (double& value : gram) value = -value;
  for (int64_t i = 0; i < m; ++i) gram[static_cast<size_t>(i * m + i)] += most;
  const double least = std::max(0.0, most - largest_eigenvalue(gram));
  return std::max(std::abs(std::sqrt(most) - 1), std::abs(std::sqrt(least) - 1));
}

Measured measure_muon(RungContext& context) {
  constexpr int64_t kShortestSide = 16;
  constexpr double kScale = 20, kMomentum = 0.95;
  Exercise exercise;
  const auto optimizer = context.parts.make_optimizer(
      exercise.store, {.kind = OptimizerKind::kMuon, .weight_decay = kDecay, .muon_scale = kScale});
  const size_t count = Exercise::kParameters.size();
  std::vector<Matrix> p(count), b(count);
  std::vector<PlainAdamW> rest(count);
  for (size_t i = 0; i < count; ++i) {
    rest[i].p = p[i] = exercise.values(i);
    b[i].resize(p[i].size());
  }
  double worst = 0, orthogonality = 0;
  for (int step = 1; step <= Exercise::kSteps; ++step) {
    exercise.draw_gradients(step);
    std::vector<Matrix> before(count);
    for (size_t i = 0; i < count; ++i) {
      before[i] = exercise.values(i);
      const auto [rows, columns, ignored] = Exercise::kParameters[i];
      const std::vector<double> g = exercise.gradients(i);
      if (std::min(rows, columns) < kShortestSide) {
        rest[i].step(g, kRate, step);
        p[i] = rest[i].p;
        continue;
      }
      Matrix u(g.size());
      for (size_t j = 0; j < g.size(); ++j) {
        b[i][j] = kMomentum * b[i][j] + g[j];
        u[j] = g[j] + kMomentum * b[i][j];
      }
      const bool tall = rows > columns;
      const Matrix x = tall ? transposed(near_orthogonal(transposed(u, rows, columns), columns, rows), columns, rows)
                            : near_orthogonal(u, rows, columns);
      const double rate =
          kRate * kScale * std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
      for (size_t j = 0; j < x.size(); ++j) p[i][j] = (1 - kRate * kDecay) * p[i][j] - rate * x[j];
    }
    optimizer->step(exercise.store.values(), exercise.store.gradients(), kRate, context.pool);
    for (size_t i = 0; i < count && step == Exercise::kSteps; ++i) {
      worst = larger(worst, relative_error(exercise.values(i), p[i]));
      const auto [rows, columns, ignored] = Exercise::kParameters[i];
      if (std::min(rows, columns) < kShortestSide) continue;
      const double rate =
          kRate * kScale * std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
      Matrix update = exercise.values(i);  // the X that the step applied
      for (size_t j = 0; j < update.size(); ++j) update[j] = ((1 - kRate * kDecay) * before[i][j] - update[j]) / rate;
      orthogonality =
          larger(orthogonality, rows > columns ? orthogonality_error(transposed(update, rows, columns), columns, rows)
                                               : orthogonality_error(update, rows, columns));
    }
  }
  return {worst, orthogonality};
}

// --- LK1: LoKr's factors ---

Measured measure_factors(RungContext& context) {
  int mistakes = 0;
  const auto check = [&](int64_t out, int64_t in, int64_t dim, int64_t factor, bool both) {
    const auto [l, k] = closed_factor_pair(out, factor);
    const auto [m, n] = closed_factor_pair(in, factor);
    const LokrShape got = context.parts.lokr_shape(out, in, dim, 2.0f, factor, both);
    const int64_t rank1 = both && 2 * dim < std::max(l, m) ? dim : 0, rank2 = 2 * dim < std::max(k, n) ? dim : 0;
    const bool whole = rank1 == 0 && rank2 == 0;
    const bool good = got.w1.rows == l && got.w1.columns == m && got.w2.rows == k && got.w2.columns == n &&
                      got.w1.rank == rank1 && got.w2.rank == rank2 && got.dim == dim &&
                      got.alpha == (whole ? static_cast<float>(dim) : 2.0f);
    mistakes += good ? 0 : 1;
  };
  for (int64_t width = 1; width <= 700; ++width)
    for (int64_t factor = -1; factor <= 40; ++factor)
      if (factor != 0) check(width, 701 - width, 1 + width % 32, factor, width % 2 == 0);
  for (const int64_t width : {1024, 2048, 2560, 4096, 6144, 9728})
    for (const int64_t factor : {-1, 1, 4, 6, 8, 16, 64}) check(width, 2560, 512, factor, true);
  // As the rule's authors print them.
  const std::array<std::array<int64_t, 4>, 4> known = {
      {{2048, 6, 4, 512}, {1024, 6, 4, 256}, {6144, 6, 6, 1024}, {2048, -1, 32, 64}}};
  for (const auto& [width, factor, small, large] : known) {
    const LokrShape got = context.parts.lokr_shape(width, width, 1, 1.0f, factor, false);
    mistakes += got.w1.rows == small && got.w2.rows == large ? 0 : 1;
  }
  return {static_cast<double>(mistakes)};
}

// --- LM2: the learning rate ---

Measured measure_learning_rate(RungContext& context) {
  double worst = 0;
  constexpr double kPeak = 3e-4, kFloor = 0.1;
  for (const Schedule kind : {Schedule::kCosine, Schedule::kLinear, Schedule::kConstant})
    for (const int64_t total : {1, 2, 7, 100})
      for (const int64_t warmup : {int64_t{0}, int64_t{1}, total / 2, total})
        for (int64_t step = 0; step < total; ++step) {
          double expected = kPeak;
          const int64_t peak_step = std::max<int64_t>(warmup, 1) - 1;
          if (step < peak_step) {
            expected = kPeak * static_cast<double>(step + 1) / static_cast<double>(warmup);
          } else if (kind != Schedule::kConstant && step > peak_step) {
            const double progress = static_cast<double>(step - peak_step) / static_cast<double>(total - 1 - peak_step);
            const double left = kind == Schedule::kLinear ? 1 - progress : std::pow(std::cos(M_PI_2 * progress), 2);
            expected = kPeak * kFloor + kPeak * (1 - kFloor) * left;
          }
          const double got = context.parts.learning_rate(
              {.kind = kind, .peak = kPeak, .floor_ratio = kFloor, .warmup_steps = warmup, .total_steps = total}, step);
          worst = larger(worst, relative_error(got, expected));
        }
  return {worst};
}

}  // namespace

Rungs rule_rungs() {
  static const std::vector<Rung> rungs = {
      {"T11",
       "AdamW and clipping = their formulas in double precision",
       Repeats::kOnce,
       {at_most(1e-5)},
       measure_adamw},
      {"MU1",
       "Muon = its formula in double precision; singular values of its steps near 1",
       Repeats::kOnce,
       {at_most(1e-4), at_most(0.5, "from 1")},
       measure_muon},
      {"LK1",
       "LoKr's factors = the rule's closed form, many widths and factors: mistakes",
       Repeats::kOnce,
       {exactly_zero()},
       measure_factors},
      {"LM2", "learning rate = its law", Repeats::kOnce, {at_most(1e-9)}, measure_learning_rate},
  };
  return rungs;
}

}  // namespace patina
