#include "cli/formulation.h"

#include <algorithm>
#include <cstdlib>

#include "cli/common.h"
#include "cli/console.h"

namespace patina {

namespace {

constexpr const char* kVariable = "GGML_BACKWARD_MM";
constexpr std::string_view kFusedIsFaster =
    "1 to 8 % faster on the gradients of F32, F16 and BF16 weights, and 2 to 3 x on those of block-quantised ones, "
    "which mm "
    "leaves to outprod (patina gemmbench)";

}  // namespace

CLI::Option* add_formulation_option(CommandLine& line, std::string& name) {
  std::vector<std::string> names;
  for (const FormulationName& row : kFormulations) names.emplace_back(row.name);
  return line
      .option("--bwd", name, "NAME",
              "How gradients pass through frozen weights: fused (the product reads the stored weight across its rows), "
              "mm (through a transposed copy of it), or outprod (through outer products with an F32 copy of it).")
      ->check(quiet(CLI::IsMember(names)));
}

FormulationChoice choose_formulation(const std::string& name, bool given) {
  const char* const set = std::getenv(kVariable);
  const bool inherited = !given && set != nullptr && *set != '\0' && std::string_view(set) != "0";
  if (inherited) {
    say("patina: --bwd mm is inherited from {}; --bwd fused is {}\n", kVariable, kFusedIsFaster);
    return {Formulation::kMm, true};
  }
  return {std::ranges::find(kFormulations, name, &FormulationName::name)->formulation, false};
}

std::vector<FallbackWarning> fallback_warnings(const FormulationCounts& counts) {
  std::vector<FallbackWarning> warnings;
  const auto warn = [&](int64_t nodes, std::string_view reason) {
    if (nodes > 0)
      warnings.push_back({fmt::format("--bwd mm: the gradients of {} are computed by outprod: {}",
                                      counted(nodes, "frozen product"), reason),
                          nodes});
  };
  warn(counts.quantised_weights, "a block-quantised weight cannot be copied transposed; --bwd fused takes any type");
  warn(counts.strided_gradients, "the gradient that arrives is a view with gaps or transposed; --bwd fused reads any");
  return warnings;
}

}  // namespace patina
