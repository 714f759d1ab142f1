// The thin products of a low-rank adapter beside a frozen product of the same layer: GFLOP/s, and their share of the frozen
// one's. Wants a quiet machine.
//   bench_adapter_products [THREADS]
#include <charconv>
#include <cstdio>
#include <cstring>

#include "backend/cpu/product.h"
#include "base/error.h"
#include "measure/machine.h"
#include "measure/random_weight.h"
#include "measure/rounds.h"

namespace patina {
namespace {

using cpu::RightOperand;

constexpr int kRounds = 5;

struct Product {
  const char* name;
  double operations;
  std::function<void()> run;
};

void measure(int64_t t, int64_t d, int64_t r, ThreadPool& pool) {
  // W [D,D], A [R,D], B [D,R]; x, y [T,D]; h [T,R]. Factors are small, so that sums that go on growing stay finite.
  const OperandMemory w = random_floats(d * d, 1, pool), a = random_floats(r * d, 2, pool, 1e-6f),
                      b = random_floats(d * r, 3, pool, 1e-6f), x = random_floats(t * d, 4, pool),
                      y = random_floats(t * d, 5, pool), h = random_floats(t * r, 6, pool, 1e-6f),
                      da = random_floats(r * d, 7, pool), db = random_floats(d * r, 8, pool);
  const int64_t widest = std::max({t, d, r});
  const int64_t scratch_bytes = cpu::product_scratch_bytes(widest, widest, pool.size());
  const OperandMemory memory(scratch_bytes);
  const std::span<std::byte> scratch(memory.data(), static_cast<size_t>(scratch_bytes));
  const auto product = [&](int64_t m, int64_t n, int64_t k, const cpu::LeftOperand& left, const RightOperand& right,
                           const OperandMemory& c, bool accumulate) {
    cpu::product(m, n, k, left, right, accumulate ? cpu::Addend{c.f32(), n} : cpu::Addend{}, c.f32(), n, pool, scratch);
  };
  const double thin = 2.0 * static_cast<double>(t * d * r);
  const Product products[] = {
      {"frozen", 2.0 * static_cast<double>(t * d * d),
       [&] { product(t, d, d, {x.f32(), d, 1}, RightOperand::numbers(w.f32(), 1, d), y, false); }},
      {"h = x A^T", thin, [&] { product(t, r, d, {x.f32(), d, 1}, RightOperand::numbers(a.f32(), 1, d), h, false); }},
      {"y += h B^T", thin,
       [&] { product(t, d, r, {h.f32(), r, 1}, RightOperand::numbers(b.f32(), 1, r, 0.5f), y, true); }},
      {"dh = dy B", thin,
       [&] { product(t, r, d, {y.f32(), d, 1}, RightOperand::numbers(b.f32(), r, 1, 0.5f), h, false); }},
      {"dx += dh A", thin, [&] { product(t, d, r, {h.f32(), r, 1}, RightOperand::numbers(a.f32(), d, 1), x, true); }},
      {"dB += dy^T h", thin, [&] { product(d, r, t, {y.f32(), 1, d}, RightOperand::numbers(h.f32(), r, 1, 0.5f), db, true); }},
      {"dA += dh^T x", thin, [&] { product(r, d, t, {h.f32(), 1, r}, RightOperand::numbers(x.f32(), d, 1), da, true); }},
  };
  std::vector<Contender> contenders;
  for (const Product& one : products) contenders.push_back({one.run, one.run});
  measure_rounds(contenders, kRounds);
  std::printf("T %5ld  D %5ld  R %4ld ", static_cast<long>(t), static_cast<long>(d), static_cast<long>(r));
  double thin_ms = 0, frozen = 0;
  for (size_t i = 0; i < contenders.size(); ++i) {
    const double gflops = products[i].operations / contenders[i].median_ms() * 1e-6;
    if (i == 0)
      frozen = gflops;
    else
      thin_ms += contenders[i].median_ms();
    std::printf(" %s %.0f", products[i].name, gflops);
    if (i > 0) std::printf(" (%.2f)", gflops / frozen);
  }
  std::printf("  all six (%.2f)\n", 6 * thin / thin_ms * 1e-6 / frozen);
  std::fflush(stdout);
}

}  // namespace
}  // namespace patina

int main(int argc, char** argv) {
  using namespace patina;
  int threads = default_threads();
  if (argc > 2 || (argc == 2 && (std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), threads).ec != std::errc() ||
                                 threads < 1))) {
    std::fprintf(stderr, "usage: bench_adapter_products [THREADS]\n");
    return 2;
  }
  ThreadPool pool(threads);
  std::printf("%s, %d threads: GFLOP/s (and in units of the frozen product)\n", cpu_model_name().c_str(), threads);
  for (const int64_t tokens : {512, 2048})
    for (const int64_t width : {576, 2560})
      for (const int64_t rank : {4, 16, 64, 512}) measure(tokens, width, rank, pool);
  return 0;
}
