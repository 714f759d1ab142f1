// Finds where numbers stop being finite.
#pragma once

#include <span>
#include <string>

#include "graph/executor.h"

namespace patina {

// Runs the graph and says which op's output is the first that is not finite: "swiglu at layers.3.ffn"; empty where all
// are finite.
std::string find_non_finite(Executor& executor, std::span<const int64_t> sizes);

}  // namespace patina
