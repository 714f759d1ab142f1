// Dropout (Srivastava et al., JMLR 15, 2014) whose mask is indexed, not drawn: any run of the same place gets the same.
#pragma once

#include <array>

#include "base/philox.h"
#include "ir/graph.h"

namespace patina {

// Where the rows of a value lie in the data of a run.
struct RowPlaces {
  ValueId step;                // [1] int32, the optimizer step
  ValueId samples, positions;  // [T'] int32
  ValueId rows = kNoValue;     // [T] int32: row t lies at samples[rows[t]]; absent: at samples[t]
};

// y [T,K] = acc + x [T,K] * keep / (1 - p), where keep is 0 with probability p, else 1, by the random stream of (seed,
// site, step, sample) at (position, column): whatever order, micro-batch or thread computes it, and when it is computed
// again. p is rounded to a multiple of 2^-16. Gradient: the same op on dy. acc is optional and may share storage with
// y.
struct Dropout : Op {
  Dropout(double probability, uint64_t random_seed, uint32_t stream);
  std::string_view name() const override { return "dropout"; }
  std::string attributes() const override;
  int in_place_input() const override { return 4; }
  void gradient(GradientBuilder& builder, const Node& node) const override;

  uint32_t threshold;  // what has a 16-bit word below it is dropped
  float scale;         // 1 / (1 - p)
  uint64_t seed;
  uint32_t site;
};
ValueId dropout(Graph& graph, ValueId x, const RowPlaces& places, double probability, uint64_t seed, uint32_t site,
                std::string_view label);

// The random words of one row, eight neighbouring columns at a time.
class DropoutRow {
 public:
  DropoutRow(const Dropout& op, int32_t step, int32_t sample, int32_t position, int64_t columns);
  std::array<uint16_t, 8> words(int64_t group) const;

 private:
  RandomStream stream_;
  uint64_t first_;
};

}  // namespace patina
