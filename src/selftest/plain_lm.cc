#include "selftest/plain_lm.h"

#include <algorithm>
#include <cmath>

#include "selftest/plain.h"

namespace patina {

PlainLm::PlainLm(const DecoderModel& model, std::span<const AdaptedSite> adapter)
    : model_(model), embedding_(decoded_matrix(model.embedding())) {
  for (const Site& site : model.sites()) weights_[{site.layer, site.name}] = decoded_matrix(site.weight);
  for (const AdaptedSite& site : adapter) add_adapter(weights_.at({site.layer, site.site}), site);
}

PlainLm::Numbers PlainLm::norm(const Numbers& x, const Tensor& scale) const {
  const Numbers numbers(scale.f32(), scale.f32() + model_.config().width);
  return plain_norm(x, numbers, static_cast<double>(model_.config().norm_eps));
}

double PlainLm::loss(const Sequence& sequence) const {
  const DecoderConfig& config = model_.config();
  const size_t width = static_cast<size_t>(config.width), rows = sequence.ids.size() - 1;
  Numbers h;
  for (size_t t = 0; t < rows; ++t) {
    const auto row = embedding_.begin() + static_cast<int64_t>(static_cast<size_t>(sequence.ids[t]) * width);
    h.insert(h.end(), row, row + config.width);
  }
  const auto add = [](Numbers& to, const Numbers& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  for (int i = 0; i < config.layers; ++i) {
    const DecoderLayer& layer = model_.layers()[static_cast<size_t>(i)];
    const Numbers a = norm(h, layer.attention_norm);
    Numbers q = plain_product(a, weight(i, "q"), config.width), k = plain_product(a, weight(i, "k"), config.width);
    plain_rotate(q, config.heads, config.head_width, config.rope_base);
    plain_rotate(k, config.kv_heads, config.head_width, config.rope_base);
    const Numbers mixed = plain_attention(q, k, plain_product(a, weight(i, "v"), config.width),
                                          {config.heads, config.kv_heads, config.head_width},
                                          [](int64_t t, int64_t s) { return s <= t; });
    add(h, plain_product(mixed, weight(i, "o"), config.heads * config.head_width));
    const Numbers m = norm(h, layer.feed_forward_norm);
    Numbers gate = plain_product(m, weight(i, "gate"), config.width);
    plain_swiglu(gate, plain_product(m, weight(i, "up"), config.width));
    add(h, plain_product(gate, weight(i, "down"), config.feed_forward));
  }
  const Numbers logits = plain_product(norm(h, model_.output_norm()), weight(-1, "lm_head"), config.width);
  const size_t vocabulary = static_cast<size_t>(config.vocabulary);
  double loss = 0;
  for (size_t t = 0; t < rows; ++t) {
    if (sequence.supervised[t + 1] == 0) continue;
    const double* const row = &logits[t * vocabulary];
    const double largest = *std::max_element(row, row + vocabulary);
    double total = 0;
    for (size_t j = 0; j < vocabulary; ++j) total += std::exp(row[j] - largest);
    loss += largest + std::log(total) - row[static_cast<size_t>(sequence.ids[t + 1])];
  }
  return loss;
}

}  // namespace patina
