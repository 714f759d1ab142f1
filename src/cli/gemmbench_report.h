// A benchmark's result as a table for people and as JSON (docs/gemmbench.md).
#pragma once

#include <string>

#include "measure/gemmbench.h"

namespace patina {

std::string gemmbench_head(const GemmBenchOptions& options, const GemmBenchMachine& machine);
// The measurements from `first` on: all of one product, or one layer, at one number of tokens.
std::string gemmbench_block(const GemmBenchResult& result, size_t first);
// What there is of sums and emulated parity.
std::string gemmbench_tail(const GemmBenchResult& result);
std::string gemmbench_json(const GemmBenchOptions& options, const GemmBenchResult& result);

}  // namespace patina
