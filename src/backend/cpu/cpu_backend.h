// The CPU backend: kernels written once with Highway, dispatched at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace patina {

const Backend& cpu_backend();

// The instruction set that kernels use on this machine: "AVX-512", "AVX2", "NEON", "portable".
std::string_view cpu_isa();

// Every instruction set this machine can run, best first; use_isa() makes kernels use one of them ("" = the best). For
// tests and benchmarks: not while kernels run.
std::vector<std::string> cpu_isas();
void use_isa(std::string_view isa);

}  // namespace patina
