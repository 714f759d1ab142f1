// A llama in plain loops and double precision, written from the architecture's description: the oracle of losses. It
// shares no code with the graph, the ops or the adapters; of the model it takes the numbers.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapted_site.h"
#include "data/dataset.h"
#include "model/decoder_model.h"

namespace patina {

class PlainLm {
 public:
  PlainLm(const DecoderModel& model, std::span<const AdaptedSite> adapter);
  // Sum of cross-entropy over the labels of a sequence, in nats.
  double loss(const Sequence& sequence) const;

 private:
  using Numbers = std::vector<double>;
  const Numbers& weight(int layer, const std::string& site) const { return weights_.at({layer, site}); }
  Numbers norm(const Numbers& x, const Tensor& scale) const;

  const DecoderModel& model_;
  Numbers embedding_;
  std::map<std::pair<int, std::string>, Numbers> weights_;
};

}  // namespace patina
