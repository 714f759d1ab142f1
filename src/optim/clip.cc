#include "optim/clip.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace patina {
namespace {

constexpr size_t kChunk = 1 << 14;
constexpr size_t kLanes = 8;  // independent sums, so that a loop over them becomes vector instructions

double sum_of_squares(std::span<const float> values) {
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  for (size_t lane = 0; i < values.size(); ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

size_t chunks_of(size_t values) { return (values + kChunk - 1) / kChunk; }

}  // namespace

double global_norm(std::span<const float> gradients, ThreadPool& pool) {
  std::vector<double> sums(chunks_of(gradients.size()));
  pool.run(static_cast<int64_t>(sums.size()), [&](int64_t chunk, int) {
    const size_t begin = static_cast<size_t>(chunk) * kChunk;
    sums[static_cast<size_t>(chunk)] =
        sum_of_squares(gradients.subspan(begin, std::min(kChunk, gradients.size() - begin)));
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

double clip(std::span<float> gradients, double norm, double max_norm, ThreadPool& pool) {
  PATINA_CHECK(std::isfinite(norm) && max_norm >= 0, "norm {} max_norm {}", norm, max_norm);
  if (max_norm == 0 || norm <= max_norm) return 1;
  const double factor = max_norm / norm;
  const float rounded = static_cast<float>(factor);
  pool.run(static_cast<int64_t>(chunks_of(gradients.size())), [&](int64_t chunk, int) {
    const size_t begin = static_cast<size_t>(chunk) * kChunk;
    for (float& value : gradients.subspan(begin, std::min(kChunk, gradients.size() - begin))) value *= rounded;
  });
  return factor;
}

}  // namespace patina
