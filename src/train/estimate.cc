#include "train/estimate.h"

#include <algorithm>
#include <chrono>

#include "ops/frozen_linear.h"

namespace patina {

namespace {

constexpr int64_t kCalibrationTokens = 512;  // products are at full speed from here on
constexpr double kCalibrationMs = 1000;

// GFLOP/s of frozen products, forward and backward, at `tokens` rows.
double products_gflops(std::span<const Tensor* const> products, int64_t tokens, Formulation formulation,
                       const Backend& backend, ThreadPool& pool) {
  Graph graph;
  std::map<int64_t, std::pair<ValueId, std::vector<float>>> inputs;  // by width
  double operations = 0;
  for (const Tensor* weight : products) {
    const int64_t width = weight->shape[1];
    if (!inputs.contains(width))
      inputs[width] = {graph.input("x", DType::kF32, {tokens, width}),
                       std::vector<float>(static_cast<size_t>(tokens * width), 1.0f)};
    const ValueId w = graph.frozen("w", *weight);
    const ValueId y = frozen_linear(graph, inputs[width].first, w, kNoValue, "forward");
    frozen_linear_gradient(graph, y, w, kNoValue, "backward", formulation);
    operations += 4.0 * static_cast<double>(tokens * weight->shape.elements());
  }
  Executor executor(graph, backend, pool);
  for (auto& [width, input] : inputs) executor.bind(input.first, input.second.data());
  const auto run_ms = [&] {
    const auto start = std::chrono::steady_clock::now();
    executor.run({});
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<double> times = {run_ms()};
  double spent = times[0];
  if (spent < kCalibrationMs) times.clear();  // it read the weights from the file and took the memory
  while (spent < kCalibrationMs) {
    times.push_back(run_ms());
    spent += times.back();
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return operations / times[times.size() / 2] * 1e-6;
}

}  // namespace

TimeEstimate estimate_time(const Trainer& trainer, std::span<const Tensor* const> products, int64_t tokens,
                           Formulation formulation, const Backend& backend, ThreadPool& pool) {
  const TrainPlan& plan = trainer.plan();
  TimeEstimate estimate{};
  estimate.step_operations = trainer.objective().epoch_operations() / static_cast<double>(plan.steps_per_epoch);
  estimate.gflops = products_gflops(products, std::min(tokens, kCalibrationTokens), formulation, backend, pool);
  estimate.step_ms = estimate.step_operations / estimate.gflops * 1e-6;
  estimate.total_ms = estimate.step_ms * static_cast<double>(plan.total_steps);
  return estimate;
}

}  // namespace patina
