// Holds the gradient of the second input against a reference in double precision, element by element, for every type,
// with and without broadcasting, for gradients of size 1 and of size 1e-7.
//   bounds TYPE [nan | zero | sign]     the last plants a fault in what the library computed: the program must fail
//   bounds TYPE gpu                     on the first GPU
//
// dx = sum over m of a * c, c the gradient of the product. With S = sum over m of |a| * |c| and u = 2^-24, a sum of m
// products in F32, in any order, is off by at most (m + 1) u S. A product in BF16 rounds c to 8 significant bits first:
// at most 2^-8 S more. a itself is read as the type holds it, so its rounding is in the reference too. A GPU rounds
// both inputs to TF32, 2^-11 each, or the result to BF16, 2^-8.
#include "support.h"

namespace {

struct Shape {
  int64_t n, m, p, q1, r1, qq, rr;
};

constexpr Shape kShapes[] = {
    {256, 48, 5, 1, 1, 1, 1}, {256, 1, 1, 1, 1, 1, 1},  {512, 129, 17, 1, 1, 1, 1}, {256, 40, 3, 1, 1, 3, 1},
    {256, 40, 3, 2, 1, 6, 1}, {256, 40, 3, 1, 1, 2, 3}, {256, 40, 3, 2, 3, 4, 3},   {256, 24, 2, 2, 2, 4, 6},
};

struct Worst {
  double share = 0.0;  // of the bound
  int64_t outside = 0;
};

void compare(float found, double expected, double bound, Worst& worst) {
  const double error = std::fabs(found - expected);
  if (!(error <= bound)) {  // NaN is outside
    worst.outside++;
  }
  worst.share = std::max(worst.share, error / bound);
}

Worst check(ggml_backend_t backend, bool gpu, ggml_type type, const Shape& s, float scale, const std::string& fault) {
  Graph g(backend, 256);
  ggml_tensor* a = g.leaf("a", type, {s.n, s.m, s.q1, s.r1});
  ggml_tensor* x = g.param("x", {s.n, s.p, s.qq, s.rr});
  ggml_tensor* c = g.leaf("c", GGML_TYPE_F32, {s.m, s.p, s.qq, s.rr}, scale);
  g.finish(ggml_sum(g.nodes(), ggml_mul(g.nodes(), ggml_mul_mat(g.nodes(), a, x), c)));
  g.compute_gradients();

  const std::vector<float> weights = Graph::get(a), gradient = Graph::get(c);
  std::vector<float> dx = g.gradient(x);
  if (fault == "nan") {
    dx[dx.size() / 2] = NAN;
  } else if (fault == "zero") {
    std::fill(dx.begin(), dx.end(), 0.0f);
  } else if (fault == "sign") {
    dx.back() = -dx.back();
  }
  const bool bf16 = type == GGML_TYPE_BF16;
  const double rounding = (bf16 ? 0x1p-8 : 0.0) + (gpu ? (bf16 ? 0x1p-8 : 2 * 0x1p-11) : 0.0);
  const double relative = 1.01 * rounding + (s.m + 1) * 0x1p-24;  // 1.01: roundings of rounded values
  Worst worst;
  for (int64_t r = 0; r < s.rr; r++) {
    for (int64_t q = 0; q < s.qq; q++) {
      const float* w = weights.data() + (r / (s.rr / s.r1) * s.q1 + q / (s.qq / s.q1)) * s.m * s.n;
      for (int64_t p = 0; p < s.p; p++) {
        const int64_t row = (r * s.qq + q) * s.p + p;
        for (int64_t n = 0; n < s.n; n++) {
          double sum = 0.0, size = 0.0;
          for (int64_t m = 0; m < s.m; m++) {
            const double term = static_cast<double>(w[m * s.n + n]) * gradient[row * s.m + m];
            sum += term;
            size += std::fabs(term);
          }
          compare(dx[row * s.n + n], sum, relative * size, worst);
        }
      }
    }
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    die("usage: bounds TYPE [gpu | nan | zero | sign]");
  }
  const std::string word = argc == 3 ? argv[2] : "";
  const bool gpu = word == "gpu";
  ggml_backend_t backend = make_backend(gpu, 2);
  int64_t outside = 0;
  for (const Shape& s : kShapes) {
    for (const float scale : {1.0f, 1e-7f}) {
      const Worst worst = check(backend, gpu, type_named(argv[1]), s, scale, word);
      std::printf(
          "%s [%lld %lld | %lld] heads %lld,%lld of %lld,%lld scale %g: %lld outside, worst %.3f of the bound\n",
          argv[1], static_cast<long long>(s.n), static_cast<long long>(s.m), static_cast<long long>(s.p),
          static_cast<long long>(s.q1), static_cast<long long>(s.r1), static_cast<long long>(s.qq),
          static_cast<long long>(s.rr), scale, static_cast<long long>(worst.outside), worst.share);
      outside += worst.outside;
    }
  }
  print_stats(stdout);
  ggml_backend_free(backend);
  return outside == 0 ? 0 : 1;
}
