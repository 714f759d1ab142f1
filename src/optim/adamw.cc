#include "optim/adamw.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/scalar_math.h"

namespace patina {
namespace {

constexpr size_t kChunk = 1 << 14;

struct Coefficients {
  float keep, gain1, beta2, gain2, rate, root2, epsilon;
};

// A function of its own, with everything by value or unaliased: only so does GCC 12 turn the loop into vector
// instructions.
void update(float* __restrict p, float* __restrict m, float* __restrict v, const float* __restrict g, size_t count,
            const Coefficients c) {
  for (size_t i = 0; i < count; ++i) {
    m[i] += c.gain1 * (g[i] - m[i]);
    v[i] = c.beta2 * v[i] + c.gain2 * (g[i] * g[i]);
    p[i] = c.keep * p[i] - c.rate * (m[i] / (std::sqrt(v[i]) / c.root2 + c.epsilon));
  }
}

}  // namespace

AdamW::AdamW(std::vector<ParameterRange> ranges, const AdamWOptions& options) : options_(options) {
  size_t moments = 0;
  for (const ParameterRange& range : ranges) {
    for (size_t at = 0; at < range.count; at += kChunk) {
      const size_t count = std::min(kChunk, range.count - at);
      chunks_.push_back({range.offset + at, moments, count, range.rate_scale});
      moments += count;
    }
    end_ = std::max(end_, range.offset + range.count);
  }
  m_.resize(moments);
  v_.resize(moments);
}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
                 ThreadPool& pool) {
  PATINA_CHECK(parameters.size() >= end_ && gradients.size() == parameters.size(), "{} parameters, {} gradients for {}",
               parameters.size(), gradients.size(), end_);
  ++steps_;
  const double t = static_cast<double>(steps_);
  const double correction1 = 1.0 - exact_pow(options_.beta1, t), correction2 = 1.0 - exact_pow(options_.beta2, t);
  pool.run(static_cast<int64_t>(chunks_.size()), [&](int64_t index, int) {
    const Chunk& chunk = chunks_[static_cast<size_t>(index)];
    const double rate = learning_rate * chunk.rate_scale;
    const Coefficients coefficients{
        .keep = static_cast<float>(1.0 - rate * options_.weight_decay),
        .gain1 = static_cast<float>(1.0 - options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .gain2 = static_cast<float>(1.0 - options_.beta2),
        .rate = static_cast<float>(rate / correction1),
        .root2 = static_cast<float>(std::sqrt(correction2)),
        .epsilon = static_cast<float>(options_.epsilon),
    };
    update(parameters.data() + chunk.offset, m_.data() + chunk.moments, v_.data() + chunk.moments,
           gradients.data() + chunk.offset, chunk.count, coefficients);
  });
}

}  // namespace patina
