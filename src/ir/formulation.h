// Which nodes compute the activation gradient dx [T,K] = dy [T,N] . W of a frozen product: a policy of differentiation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace patina {

enum class Formulation : uint8_t {
  kFused,    // the product itself reads W across its rows
  kMm,       // a transposed copy of W in its own type, then a forward product
  kOutprod,  // W in F32, then a sum of outer products
};

struct FormulationName {
  Formulation formulation;
  std::string_view name;
};
inline constexpr FormulationName kFormulations[] = {
    {Formulation::kFused, "fused"}, {Formulation::kMm, "mm"}, {Formulation::kOutprod, "outprod"}};

constexpr std::string_view name(Formulation formulation) {
  return kFormulations[static_cast<size_t>(formulation)].name;  // the table is in the order of the enumeration
}

// What the rules emitted, in nodes of frozen products. Where kMm cannot be used for a node, kOutprod is, and the reason
// is counted.
struct FormulationCounts {
  int64_t& operator[](Formulation formulation) { return nodes[static_cast<size_t>(formulation)]; }
  int64_t operator[](Formulation formulation) const { return nodes[static_cast<size_t>(formulation)]; }

  std::array<int64_t, std::size(kFormulations)> nodes{};
  int64_t strided_gradients = 0;  // not kMm, because dy has gaps or is transposed
  int64_t quantised_weights = 0;  // not kMm, because a block-quantised weight cannot be copied transposed
};

}  // namespace patina
