#include "ops/dropout.h"

#include <cmath>

namespace patina {

namespace {

constexpr double kWords = 65536;  // of 16 bits

}  // namespace

Dropout::Dropout(double probability, uint64_t random_seed, uint32_t stream)
    : threshold(static_cast<uint32_t>(std::lround(probability * kWords))),
      scale(static_cast<float>(1.0 / (1.0 - threshold / kWords))),
      seed(random_seed),
      site(stream) {
  PATINA_CHECK(probability >= 0 && threshold < kWords, "probability {}", probability);
}

std::string Dropout::attributes() const { return fmt::format("p={}/65536,site={}", threshold, site); }

void Dropout::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId x = node.inputs[0];
  if (!builder.wants(x)) return;
  Graph& graph = builder.graph();
  builder.set_gradient(x, graph.node(std::make_shared<Dropout>(*this),
                                     {builder.dy(node.outputs[0]), node.inputs[1], node.inputs[2], node.inputs[3],
                                      builder.so_far(x), node.inputs[5]},
                                     {graph.value(x).extents}, node.label)[0]);
}

ValueId dropout(Graph& graph, ValueId x, const RowPlaces& places, double probability, uint64_t seed, uint32_t site,
                std::string_view label) {
  const ValueId rows = places.rows == kNoValue ? places.positions : places.rows;
  PATINA_CHECK(graph.value(x).extents[0] == graph.value(rows).extents[0] &&
                   graph.value(places.samples).extents == graph.value(places.positions).extents,
               "{}: x {} rows {}", label, graph.maximum_shape(x).str(), graph.maximum_shape(rows).str());
  return graph.node(std::make_shared<Dropout>(probability, seed, site),
                    {x, places.step, places.samples, places.positions, kNoValue, places.rows}, {graph.value(x).extents},
                    label)[0];
}

DropoutRow::DropoutRow(const Dropout& op, int32_t step, int32_t sample, int32_t position, int64_t columns)
    : stream_(op.seed, RandomUse::kDropout, op.site, static_cast<uint32_t>(step), static_cast<uint32_t>(sample)),
      first_(static_cast<uint64_t>(position) * static_cast<uint64_t>((columns + 7) / 8)) {}

std::array<uint16_t, 8> DropoutRow::words(int64_t group) const {
  const std::array<uint32_t, 4> bits = stream_.bits(first_ + static_cast<uint64_t>(group));
  std::array<uint16_t, 8> words;
  for (size_t i = 0; i < bits.size(); ++i) {
    words[2 * i] = static_cast<uint16_t>(bits[i]);
    words[2 * i + 1] = static_cast<uint16_t>(bits[i] >> 16);
  }
  return words;
}

}  // namespace patina
