#include "optim/adamw.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/scalar_math.h"

namespace patina {
namespace {

constexpr size_t kChunk = 1 << 14;

}  // namespace

AdamW::AdamW(size_t parameters, const AdamWOptions& options) : options_(options), m_(parameters), v_(parameters) {}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
                 ThreadPool& pool) {
  PATINA_CHECK(parameters.size() == m_.size() && gradients.size() == m_.size(), "{} parameters, {} gradients for {}",
               parameters.size(), gradients.size(), m_.size());
  ++steps_;
  const double t = static_cast<double>(steps_);
  const double correction1 = 1.0 - exact_pow(options_.beta1, t), correction2 = 1.0 - exact_pow(options_.beta2, t);
  const float keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
  const float gain1 = static_cast<float>(1.0 - options_.beta1);
  const float beta2 = static_cast<float>(options_.beta2), gain2 = static_cast<float>(1.0 - options_.beta2);
  const float rate = static_cast<float>(learning_rate / correction1);
  const float root2 = static_cast<float>(std::sqrt(correction2));
  const float epsilon = static_cast<float>(options_.epsilon);

  const size_t chunks = (parameters.size() + kChunk - 1) / kChunk;
  pool.run(static_cast<int64_t>(chunks), [&](int64_t chunk, int) {
    const size_t begin = static_cast<size_t>(chunk) * kChunk, count = std::min(kChunk, parameters.size() - begin);
    float* __restrict p = parameters.data() + begin;
    float* __restrict m = m_.data() + begin;
    float* __restrict v = v_.data() + begin;
    const float* __restrict g = gradients.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      m[i] += gain1 * (g[i] - m[i]);
      v[i] = beta2 * v[i] + gain2 * (g[i] * g[i]);
      p[i] = keep * p[i] - rate * (m[i] / (std::sqrt(v[i]) / root2 + epsilon));
    }
  });
}

}  // namespace patina
