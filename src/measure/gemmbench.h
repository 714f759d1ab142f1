// The benchmark of the frozen product: what `patina gemmbench` runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "measure/emulation.h"
#include "measure/measurement.h"
#include "measure/products.h"

namespace patina {

struct GemmBenchOptions {
  ModelShape shape;
  std::vector<int64_t> tokens;
  std::vector<DType> types;
  std::vector<Formulation> formulations;
  int threads = 1, reps = 5;
  bool step = false;     // a layer in one graph instead of its products one by one
  bool emulate = false;  // emulate_ggml_cuda() too
  double min_ratio = 0;  // 0: none
  const char* yardstick_library = kOpenBlasLibrary;
};

struct GemmBenchMachine {
  std::string cpu, isa;
  int threads = 0;
  double peak_gflops = 0;
  std::string yardstick, yardstick_core;  // empty: there is none
  int yardstick_threads = 0;
  double other_cores_before = 0, other_cores = 0;  // that other processes kept busy, before and on average in the run

  bool busy() const;
};

struct GemmBenchResult {
  GemmBenchMachine machine;
  std::vector<Measurement> measurements;
  std::vector<LayerSum> sums;
  std::vector<EmulatedParity> emulated;
};

// Error(kUsage) where an option asks for what cannot be.
void check_options(const GemmBenchOptions& options);

// Calls `progress` when the machine is known and then after each block of measurements with the index of its first.
// Error(kUsage) as check_options(), and where a ratio is asked for without a yardstick.
GemmBenchResult run_gemmbench(const GemmBenchOptions& options, const Backend& backend,
                              FunctionRef<void(const GemmBenchResult& so_far, size_t first)> progress);

// What makes the benchmark fail, a line each: results that are further from the exact ones than F32 arithmetic
// explains; and with a minimum, sums of `fused` (layers, with `step`) below it in forward or backward, or invalid.
std::vector<std::string> gemmbench_faults(const GemmBenchResult& result, double min_ratio);

}  // namespace patina
