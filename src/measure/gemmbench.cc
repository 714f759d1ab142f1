#include "measure/gemmbench.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "measure/layer.h"
#include "measure/machine.h"

namespace patina {

namespace {

constexpr std::chrono::milliseconds kListen{300};

GemmBenchMachine facts(const GemmBenchOptions& options, ThreadPool& pool, const Yardstick* yardstick) {
  GemmBenchMachine machine;
  const OtherLoad load;
  std::this_thread::sleep_for(kListen);
  machine.other_cores_before = load.cores();
  machine.cpu = cpu_model_name();
  machine.isa = cpu_isa();
  machine.threads = options.threads;
  machine.peak_gflops = multiply_add_peak(pool);
  if (yardstick != nullptr) {
    machine.yardstick = yardstick->config();
    machine.yardstick_core = yardstick->core();
    machine.yardstick_threads = yardstick->threads();
  }
  return machine;
}

std::string title(const Measurement& m) {
  return fmt::format("{} T={} {} {} {}", m.sites, m.t, m.type, name(m.kind), m.formulation);
}

}  // namespace

void check_options(const GemmBenchOptions& options) {
  const ModelShape& shape = options.shape;
  if (options.step && shape.d == 0)
    fail(Error::Kind::kUsage, "--step takes the shape of a model, {} is a single product", shape.name);
  const bool needs_fused = options.min_ratio > 0;
  if (needs_fused && std::ranges::find(options.formulations, Formulation::kFused) == options.formulations.end())
    fail(Error::Kind::kUsage, "--min-ratio is about fused, which --formulations leaves out");
  for (const DType dtype : options.types) {
    const auto stores = [&](const ProductShape& product) { return can_store(dtype, product.k); };
    if (std::ranges::none_of(shape.products, stores) || (options.step && !std::ranges::all_of(shape.products, stores)))
      fail(Error::Kind::kUsage, "--types: {} stores rows in blocks of {} values, and rows of {} are no whole blocks",
           name(dtype), info(dtype).block_values, shape.name);
  }
}

bool GemmBenchMachine::busy() const { return other_cores_before > kBusyCores || other_cores > kBusyCores; }

GemmBenchResult run_gemmbench(const GemmBenchOptions& options, const Backend& backend,
                              FunctionRef<void(const GemmBenchResult& so_far, size_t first)> progress) {
  check_options(options);
  const std::unique_ptr<Yardstick> yardstick = Yardstick::load(options.yardstick_library, options.threads);
  if (yardstick == nullptr && options.min_ratio > 0)
    fail(Error::Kind::kUsage,
         "--min-ratio needs OpenBLAS to compare with, and {} is not on this machine; install the package "
         "libopenblas0-pthread (or libopenblas-dev)",
         options.yardstick_library);
  const OtherLoad load;
  ThreadPool pool(options.threads);
  GemmBenchResult result;
  result.machine = facts(options, pool, yardstick.get());
  progress(result, 0);

  const MeasureContext context{backend, pool, yardstick.get(), result.machine.peak_gflops, options.reps};
  const auto add = [&](const std::vector<Measurement>& block) {
    const size_t first = result.measurements.size();
    result.measurements.insert(result.measurements.end(), block.begin(), block.end());
    progress(result, first);
  };
  for (const int64_t tokens : options.tokens) {
    if (options.step) add(measure_layer(context, options.shape, tokens, options.types, options.formulations));
    for (const ProductShape& product : options.shape.products) {
      if (!options.step) add(measure_product(context, product, tokens, options.types, options.formulations));
      if (!options.emulate) continue;
      const std::vector<EmulatedParity> emulated = emulate_ggml_cuda(context, product, tokens);
      result.emulated.insert(result.emulated.end(), emulated.begin(), emulated.end());
    }
  }
  result.sums = layer_sums(result.measurements);
  result.machine.other_cores = load.cores();
  return result;
}

std::vector<std::string> gemmbench_faults(const GemmBenchResult& result, double min_ratio) {
  std::vector<std::string> faults;
  for (const Measurement& m : result.measurements)
    if (m.formulation != kSgemm && m.parity && !m.parity->ok())
      faults.push_back(fmt::format("parity: {}: rms relative error {:.2e}, accepted {:.2e}", title(m),
                                   m.parity->rms_relative, m.parity->bound));
  if (min_ratio <= 0) return faults;
  const auto check_ratio = [&](const std::string& what, double ratio, bool invalid) {
    if (invalid)
      faults.push_back(
          fmt::format("{}: sgemm itself varied by more than 3 %, so there is no ratio; run on a quiet machine", what));
    else if (!(ratio >= min_ratio))
      faults.push_back(fmt::format("{}: {:.3f} x sgemm, at least {} was asked for", what, ratio, min_ratio));
  };
  for (const LayerSum& sum : result.sums) {
    if (sum.formulation != Formulation::kFused) continue;
    const auto what = [&](const char* direction) {
      return fmt::format("sum of a layer T={} {} {} fused", sum.t, sum.type, direction);
    };
    check_ratio(what("forward"), sum.forward_ratio(), sum.invalid);
    check_ratio(what("backward"), sum.backward_ratio(), sum.invalid);
  }
  for (const Measurement& m : result.measurements)
    if (m.kind == Measurement::Kind::kForward && !m.measured())
      faults.push_back(fmt::format("sum of a layer T={} {}: there is none, as {}: {}", m.t, m.type, m.sites, m.note));
    else if (m.kind == Measurement::Kind::kLayer && m.formulation == name(Formulation::kFused))
      check_ratio(title(m), m.ratio(), m.invalid);
  return faults;
}

}  // namespace patina
