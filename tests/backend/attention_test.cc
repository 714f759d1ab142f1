#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <map>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "base/philox.h"
#include "ops/attention_ref.h"
#include "support/targets.h"

namespace patina {
namespace {

using Mask = AttentionSpec::Mask;
using Complex = std::complex<double>;
constexpr float kCanary = 12345.0f;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Rows of F32 with `gap` canaries behind each row and some around the whole.
struct Matrix {
  Matrix(int64_t rows_, int64_t columns_, int64_t gap_ = 0)
      : rows(rows_), columns(columns_), gap(gap_), numbers(static_cast<size_t>(rows * (columns + gap) + 64), kCanary) {}
  float& at(int64_t r, int64_t c) { return numbers[static_cast<size_t>(32 + r * (columns + gap) + c)]; }
  float at(int64_t r, int64_t c) const { return const_cast<Matrix*>(this)->at(r, c); }
  Tensor tensor() {
    Tensor result = dense(numbers.data() + 32, DType::kF32, {rows, columns});
    result.strides = {columns + gap, 1};
    return result;
  }
  void fill_normal(uint32_t site, double scale = 1.0) {
    const RandomStream random(7, RandomUse::kTest, site);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        at(r, c) = static_cast<float>(scale * random.normal(static_cast<uint64_t>(r * columns + c)));
  }
  bool canaries_intact() const {
    for (int64_t i = 0; i < std::ssize(numbers); ++i) {
      const int64_t inside = i - 32;
      const bool data = inside >= 0 && inside < rows * (columns + gap) && inside % (columns + gap) < columns;
      if (!data && numbers[static_cast<size_t>(i)] != kCanary) return false;
    }
    return true;
  }
  int64_t rows, columns, gap;
  std::vector<float> numbers;
};

bool same_bits(const Matrix& a, const Matrix& b) {
  return a.numbers.size() == b.numbers.size() &&
         std::memcmp(a.numbers.data(), b.numbers.data(), a.numbers.size() * sizeof(float)) == 0;
}

// Numbers of the reference.
template <typename S>
struct Numbers {
  Numbers(int64_t rows, int64_t columns) : shape{rows, columns}, values(static_cast<size_t>(rows * columns)) {}
  explicit Numbers(const Matrix& m) : Numbers(m.rows, m.columns) {
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.columns; ++c) at(r, c) = S(m.at(r, c));
  }
  S& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * shape[1] + c)]; }
  RefTensor<S> tensor() { return {values.data(), nullptr, shape, contiguous_strides(shape)}; }
  Shape shape;
  std::vector<S> values;
};

struct Case {
  std::string name;
  int64_t heads, kv_heads, width;
  Mask mask;
  int64_t window;
  std::vector<int32_t> q_offsets, kv_offsets, first;
  int64_t spare_rows = 0;  // of k and v, behind the last sequence

  AttentionSpec spec() const {
    return {heads, kv_heads, width, mask, window, 1.0f / std::sqrt(static_cast<float>(width))};
  }
};

// One sequence of its own keys.
Case self(int64_t heads, int64_t kv_heads, int64_t width, int32_t rows, Mask mask = Mask::kCausal, int64_t window = 0) {
  return {fmt::format("H{}G{}C{}T{}mask{}window{}", heads, kv_heads, width, rows, static_cast<int>(mask), window),
          heads,
          kv_heads,
          width,
          mask,
          window,
          {0, rows},
          {0, rows},
          {0}};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int32_t rows : {1, 7, 17, 65, 257}) all.push_back(self(4, 2, 64, rows));
  for (const int64_t width : {16, 80, 128}) all.push_back(self(1, 1, width, 65));
  all.push_back(self(9, 3, 64, 130));
  all.push_back(self(2, 2, 19, 70));
  all.push_back(self(2, 2, 19, 5));
  all.push_back(self(2, 1, 32, 200, Mask::kWindow, 40));
  all.push_back(self(2, 1, 32, 200, Mask::kWindow, 0));
  all.push_back(self(2, 1, 32, 7, Mask::kWindow, 2));
  all.push_back(self(2, 1, 32, 67, Mask::kNone));
  all.push_back({"packed", 4, 2, 16, Mask::kCausal, 0, {0, 70, 70, 75, 200}, {0, 70, 70, 75, 200}, {0, 0, 0, 0}});
  all.push_back({"cache", 9, 3, 64, Mask::kCausal, 0, {0, 9}, {0, 140}, {131}, 13});
  all.push_back({"cache_one", 9, 3, 64, Mask::kCausal, 0, {0, 1}, {0, 300}, {299}, 212});
  all.push_back({"caches", 4, 2, 80, Mask::kCausal, 0, {0, 1, 2, 22}, {5, 69, 70, 140}, {63, 0, 50}, 3});
  all.push_back({"cross", 4, 4, 32, Mask::kNone, 0, {0, 66, 80, 90}, {0, 11, 140, 140}, {0, 0, 0}});
  all.push_back({"window_past_the_keys", 2, 1, 16, Mask::kWindow, 3, {0, 40}, {0, 20}, {10}});
  all.push_back({"window_past_the_keys_few", 2, 1, 16, Mask::kWindow, 3, {0, 4}, {0, 20}, {21}});
  return all;
}

struct Buffers {
  Matrix q, k, v, dy, o, lse, dq, dk, dv;
  Buffers(const Case& c, int64_t gap)
      : q(c.q_offsets.back(), c.heads * c.width, gap),
        k(c.kv_offsets.back() + c.spare_rows, c.kv_heads * c.width, 2 * gap),
        v(k.rows, k.columns, gap),
        dy(q.rows, q.columns, gap),
        o(q.rows, q.columns, gap),
        lse(q.rows, c.heads),
        dq(q.rows, q.columns, gap),
        dk(k.rows, k.columns, gap),
        dv(k.rows, k.columns, gap) {
    q.fill_normal(1, 2.0);
    k.fill_normal(2);
    v.fill_normal(3);
    dy.fill_normal(4);
  }
};

Tensor ints(const std::vector<int32_t>& values) {
  return dense(const_cast<int32_t*>(values.data()), DType::kI32, {std::ssize(values)});
}

void run_kernels(const Case& c, Buffers& run, int threads, bool backward = true) {
  ThreadPool pool(threads);
  const auto call = [&](const Op& op, Kernel kernel, ScratchBytes scratch_bytes, std::span<const Tensor> in,
                        std::span<const Tensor> out) {
    const int64_t bytes = scratch_bytes(op, in, out, threads);
    std::vector<float> scratch(static_cast<size_t>(bytes / 4 + 32), kCanary);
    float* start = scratch.data();
    while (reinterpret_cast<uintptr_t>(start) % 64 != 0) ++start;
    KernelContext context{pool, {reinterpret_cast<std::byte*>(start), static_cast<size_t>(bytes)}};
    kernel(op, in, out, context);
    for (const float* after = start + bytes / 4; after < scratch.data() + scratch.size(); ++after)
      ASSERT_EQ(*after, kCanary) << "scratch overrun";
  };
  std::vector<Tensor> in{run.q.tensor(),    run.k.tensor(),     run.v.tensor(),
                         ints(c.q_offsets), ints(c.kv_offsets), ints(c.first)};
  const std::vector<Tensor> out{run.o.tensor(), run.lse.tensor()};
  call(Attention(c.spec()), cpu::attention, cpu::attention_scratch_bytes, in, out);
  if (!backward) return;
  in.insert(in.end(), {out[0], out[1], run.dy.tensor()});
  call(AttentionGrad(c.spec()), cpu::attention_grad, cpu::attention_grad_scratch_bytes, in,
       std::vector<Tensor>{run.dq.tensor(), run.dk.tensor(), run.dv.tensor()});
}

template <typename S>
struct Reference {
  Numbers<S> q, k, v, dy, o, lse, dq, dk, dv;
  explicit Reference(const Buffers& run)
      : q(run.q),
        k(run.k),
        v(run.v),
        dy(run.dy),
        o(q.shape[0], q.shape[1]),
        lse(q.shape[0], run.lse.columns),
        dq(o),
        dk(k.shape[0], k.shape[1]),
        dv(dk) {}
  void run(const Case& c, bool backward = true) {
    std::vector<RefTensor<S>> in{q.tensor(),         k.tensor(),          v.tensor(),
                                 index(c.q_offsets), index(c.kv_offsets), index(c.first)};
    const std::vector<RefTensor<S>> out{o.tensor(), lse.tensor()};
    reference::attention<S>(Attention(c.spec()), in, out);
    if (!backward) return;
    in.insert(in.end(), {out[0], out[1], dy.tensor()});
    reference::attention_grad<S>(AttentionGrad(c.spec()), in,
                                 std::vector<RefTensor<S>>{dq.tensor(), dk.tensor(), dv.tensor()});
  }
  static RefTensor<S> index(const std::vector<int32_t>& values) {
    return {nullptr, values.data(), {std::ssize(values)}, {1}};
  }
};

// Largest error against the largest number of the reference or against `size`; equal infinities are no error, anything
// else that is not finite is.
template <typename Got, typename Expected>
double relative_error(Got got, Expected expected, int64_t rows, int64_t columns, double size) {
  double worst = 0.0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const double x = got(r, c), y = expected(r, c);
      if (x == y) continue;
      const double error = std::abs(x - y);
      if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, error);
    }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      if (std::isfinite(expected(r, c))) size = std::max(size, std::abs(expected(r, c)));
  return worst / size;
}

void expect_near(const char* what, const Matrix& got, Numbers<double>& expected, double tolerance,
                 double size = 1e-30) {
  const double error =
      relative_error([&](int64_t r, int64_t c) { return static_cast<double>(got.at(r, c)); },
                     [&](int64_t r, int64_t c) { return expected.at(r, c); }, got.rows, got.columns, size);
  EXPECT_FALSE(!(error <= tolerance)) << what << " error " << error << " tolerance " << tolerance;
}

// Rounding of a score is at most (C + 2) eps |q| |k| scale and moves a probability by as much, relatively; here
// |q| |k| scale is about 2 sqrt(C) (standard deviations 2 and 1), and errors of a sum behave like a random walk. A
// chain of length n over keys or queries adds sqrt(n) eps. The factor covers the products of both.
double tolerance(const Case& c) {
  constexpr double kEpsilon = 6e-8;
  const double chain = static_cast<double>(std::max(c.q_offsets.back(), c.kv_offsets.back()));
  return 4 * kEpsilon * (2 * std::sqrt(static_cast<double>(c.width)) + std::sqrt(chain) + 4);
}

TEST(Attention, KernelsAgreeWithTheReference) {
  for (const Case& c : cases())
    for_each_target([&] {
      SCOPED_TRACE(c.name);
      Buffers run(c, 5);
      run_kernels(c, run, 2);
      Reference<double> reference(run);
      reference.run(c);
      expect_near("o", run.o, reference.o, tolerance(c));
      expect_near("lse", run.lse, reference.lse, tolerance(c));
      // Here terms of size 1 (do . v, scaled) cancel, all of them where a query sees one key.
      expect_near("dq", run.dq, reference.dq, tolerance(c), 1.0);
      expect_near("dk", run.dk, reference.dk, tolerance(c), 1.0);
      expect_near("dv", run.dv, reference.dv, tolerance(c));
      for (const Matrix* m : {&run.o, &run.lse, &run.dq, &run.dk, &run.dv}) EXPECT_TRUE(m->canaries_intact());
    });
}

TEST(Attention, SameBitsOnAnyThreadsAndFusedInstructionSet) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    std::map<bool, Buffers> expected;  // for instruction sets with fused multiply-add, without
    for (const std::string& isa : cpu_isas()) {
      use_isa(isa);
      for (const int threads : {1, 2, 3, 5}) {
        Buffers run(c, 0);
        run_kernels(c, run, threads);
        const Buffers& first = expected.try_emplace(isa != "portable", run).first->second;
        EXPECT_TRUE(same_bits(run.o, first.o) && same_bits(run.lse, first.lse)) << isa << " " << threads;
        EXPECT_TRUE(same_bits(run.dq, first.dq)) << isa << " " << threads;
        EXPECT_TRUE(same_bits(run.dk, first.dk) && same_bits(run.dv, first.dv)) << isa << " " << threads;
      }
    }
  }
  use_isa("");
}

TEST(Attention, PackedSequencesGiveTheBitsOfSeparateOnes) {
  const Case packed{"packed", 4, 2, 16, Mask::kCausal, 0, {0, 70, 70, 75, 200}, {0, 70, 70, 75, 200}, {0, 0, 0, 0}};
  Buffers together(packed, 0);
  run_kernels(packed, together, 2);
  for (size_t b = 0; b + 1 < packed.q_offsets.size(); ++b) {
    const int32_t begin = packed.q_offsets[b], rows = packed.q_offsets[b + 1] - begin;
    const Case c = self(4, 2, 16, rows);
    Buffers alone(c, 0);
    const auto copy = [&](Matrix& to, const Matrix& from) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t col = 0; col < to.columns; ++col) to.at(r, col) = from.at(begin + r, col);
    };
    copy(alone.q, together.q);
    copy(alone.k, together.k);
    copy(alone.v, together.v);
    copy(alone.dy, together.dy);
    run_kernels(c, alone, 2);
    const auto expect_slice = [&](const char* what, const Matrix& part, const Matrix& whole) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t col = 0; col < part.columns; ++col)
          ASSERT_EQ(std::bit_cast<uint32_t>(part.at(r, col)), std::bit_cast<uint32_t>(whole.at(begin + r, col)))
              << what << " sequence " << b << " row " << r << " column " << col;
    };
    expect_slice("o", alone.o, together.o);
    expect_slice("lse", alone.lse, together.lse);
    expect_slice("dq", alone.dq, together.dq);
    expect_slice("dk", alone.dk, together.dk);
    expect_slice("dv", alone.dv, together.dv);
  }
}

TEST(Attention, QueriesWithoutVisibleKeysGiveZeroAndNoGradient) {
  for (const int32_t queries : {4, 40}) {
    const Case c{"window", 2, 1, 16, Mask::kWindow, 3, {0, queries}, {0, 20}, {24}};
    for_each_target([&] {
      Buffers run(c, 0);
      run_kernels(c, run, 1);
      for (int64_t r = 0; r < queries; ++r)
        for (int64_t col = 0; col < 32; ++col) EXPECT_TRUE(run.o.at(r, col) == 0.0f && run.dq.at(r, col) == 0.0f);
      for (int64_t r = 0; r < queries; ++r) EXPECT_EQ(run.lse.at(r, 0), kNothing);
      for (int64_t r = 0; r < 20; ++r) EXPECT_TRUE(run.dk.at(r, 3) == 0.0f && run.dv.at(r, 3) == 0.0f);
    });
  }
}

TEST(Attention, NumbersThatAreNotFiniteAreSeen) {
  for (const int32_t queries : {1, 20}) {
    const Case c{"nan", 2, 1, 16, Mask::kCausal, 0, {0, queries}, {0, 20}, {20 - queries}};
    for_each_target([&] {
      for (Matrix Buffers::*where : {&Buffers::q, &Buffers::k, &Buffers::v}) {
        Buffers run(c, 0);
        (run.*where).at(0, 3) = std::numeric_limits<float>::quiet_NaN();
        run_kernels(c, run, 1);
        EXPECT_TRUE(std::isnan(run.o.at(0, 3)));
        EXPECT_TRUE(std::isnan(run.dk.at(0, 3)));
      }
      Buffers run(c, 0);
      Reference<double> reference(run);
      reference.run(c);
      run.q.at(0, 3) = std::numeric_limits<float>::quiet_NaN();
      run_kernels(c, run, 1);
      EXPECT_FALSE(relative_error([&](int64_t r, int64_t col) { return static_cast<double>(run.o.at(r, col)); },
                                  [&](int64_t r, int64_t col) { return reference.o.at(r, col); }, queries, 32,
                                  1.0) <= 1e6);
    });
  }
}

// Large scores neither overflow nor lose the sum.
TEST(Attention, LargeScores) {
  const Case c = self(2, 1, 16, 100);
  for_each_target([&] {
    Buffers run(c, 0);
    run.q.fill_normal(1, 300.0);
    run_kernels(c, run, 2);
    Reference<double> reference(run);
    reference.run(c);
    // A score of 1000 is rounded by 1e-4.
    expect_near("o", run.o, reference.o, 2e-3);
    expect_near("dv", run.dv, reference.dv, 2e-3);
  });
}

TEST(Attention, GradientReferenceIsTheDerivativeOfTheReference) {
  std::vector<Case> small{
      self(4, 2, 3, 6),
      self(2, 1, 4, 9, Mask::kWindow, 2),
      {"packed", 2, 2, 3, Mask::kCausal, 0, {0, 4, 4, 7}, {0, 6, 6, 9}, {2, 0, 0}, 2},
      {"cross", 4, 1, 2, Mask::kNone, 0, {0, 5, 6}, {0, 2, 9}, {0, 0}},
      {"unseen", 2, 1, 3, Mask::kWindow, 1, {0, 6}, {0, 4}, {1}},
  };
  for (const Case& c : small) {
    SCOPED_TRACE(c.name);
    const Buffers run(c, 0);
    Reference<double> plain(run);
    plain.run(c);
    constexpr double kStep = 1e-30;
    const auto check = [&](const char* what, Numbers<Complex> Reference<Complex>::*input, Numbers<double>& gradient) {
      for (size_t e = 0; e < gradient.values.size(); ++e) {
        Reference<Complex> shifted(run);
        (shifted.*input).values[e] += Complex(0, kStep);
        shifted.run(c, false);
        double derivative = 0.0;
        for (size_t i = 0; i < shifted.o.values.size(); ++i)
          derivative += shifted.o.values[i].imag() / kStep * shifted.dy.values[i].real();
        ASSERT_FALSE(!(std::abs(derivative - gradient.values[e]) <= 1e-10)) << what << " element " << e;
      }
    };
    check("dq", &Reference<Complex>::q, plain.dq);
    check("dk", &Reference<Complex>::k, plain.dk);
    check("dv", &Reference<Complex>::v, plain.dv);
  }
}

TEST(Attention, OffsetsAreChecked) {
  Case c = self(2, 1, 16, 20);
  Buffers run(c, 0);
  c.q_offsets = {0, 19};
  EXPECT_THROW(run_kernels(c, run, 1), InternalError);
  c.q_offsets = {0, 20};
  c.kv_offsets = {0, 21};
  EXPECT_THROW(run_kernels(c, run, 1), InternalError);
}

}  // namespace
}  // namespace patina
