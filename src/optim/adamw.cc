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

AdamW::AdamW(size_t parameters, const AdamWOptions& options) : options_(options), m_(parameters), v_(parameters) {}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
                 ThreadPool& pool) {
  PATINA_CHECK(parameters.size() == m_.size() && gradients.size() == m_.size(), "{} parameters, {} gradients for {}",
               parameters.size(), gradients.size(), m_.size());
  ++steps_;
  const double t = static_cast<double>(steps_);
  const double correction1 = 1.0 - exact_pow(options_.beta1, t), correction2 = 1.0 - exact_pow(options_.beta2, t);
  const Coefficients coefficients{
      .keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay),
      .gain1 = static_cast<float>(1.0 - options_.beta1),
      .beta2 = static_cast<float>(options_.beta2),
      .gain2 = static_cast<float>(1.0 - options_.beta2),
      .rate = static_cast<float>(learning_rate / correction1),
      .root2 = static_cast<float>(std::sqrt(correction2)),
      .epsilon = static_cast<float>(options_.epsilon),
  };
  const size_t chunks = (parameters.size() + kChunk - 1) / kChunk;
  pool.run(static_cast<int64_t>(chunks), [&](int64_t chunk, int) {
    const size_t begin = static_cast<size_t>(chunk) * kChunk, count = std::min(kChunk, parameters.size() - begin);
    update(parameters.data() + begin, m_.data() + begin, v_.data() + begin, gradients.data() + begin, count,
           coefficients);
  });
}

}  // namespace patina
