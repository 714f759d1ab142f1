// --bwd, and the environment variable through which programs built on ggml are asked for mm.
#pragma once

#include <string>

#include "cli/command.h"
#include "ir/formulation.h"

namespace patina {

CLI::Option* add_formulation_option(CommandLine& line, std::string& name);

struct FormulationChoice {
  Formulation formulation;
  bool inherited;  // from GGML_BACKWARD_MM
};

// --bwd as given; where it was not, mm where GGML_BACKWARD_MM is set to anything but nothing or exactly "0", as ggml's
// readers take it. Says so on stderr. The only place that reads the variable.
FormulationChoice choose_formulation(const std::string& name, bool given);

// What a run says where mm was asked for and could not be used everywhere: a text and how many products it is about.
struct FallbackWarning {
  std::string text;
  int64_t count;
};
std::vector<FallbackWarning> fallback_warnings(const FormulationCounts& counts);

}  // namespace patina
