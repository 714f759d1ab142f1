// What a rung is given: the parts that it tests, and the row that it is run for.
#pragma once

#include <any>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "adapter/lokr.h"
#include "data/sampler.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "selftest/rung.h"
#include "selftest/scratch_directory.h"
#include "selftest/trainable_model.h"
#include "train/flow_matching.h"

namespace patina {

using ModelFactory = std::function<std::unique_ptr<TrainableModel>(DType dtype, const std::filesystem::path& directory,
                                                                   ThreadPool& pool)>;

// The parts of the program that rungs test beside models: those in use, unless a test of the self-test puts a faulty
// one in the place of one.
struct TestedParts {
  const Backend* backend;  // never null
  std::function<std::unique_ptr<Adapter>(std::span<const Site>, const AdapterOptions&)> make_adapter;
  std::function<std::unique_ptr<Optimizer>(const ParameterStore&, const OptimizerOptions&)> make_optimizer;
  std::function<double(std::span<float> gradients, double norm, double max_norm, ThreadPool&)> clip;
  std::function<double(const ScheduleOptions&, int64_t step)> learning_rate;
  std::function<LokrShape(int64_t out, int64_t in, int64_t dim, float alpha, int64_t factor, bool both)> lokr_shape;
  std::function<void(MicroBatch&, std::span<const Sequence>, std::span<const size_t>)> fill;
  std::function<void(AdapterFormat, const std::filesystem::path&, const AdapterFile&, const AdapterBase&)>
      write_adapter;
  std::function<FlowDraw(const Song&, size_t index, const FlowOptions&, int64_t patch, uint64_t seed, int64_t step)>
      draw_flow;
  std::function<void(std::span<FlowDraw>, const FlowOptions&)> weigh_draws;
  std::function<void(FlowBatch&, std::span<const Song>, std::span<const FlowDraw>, const FlowLayout&)> fill_flow;
};
TestedParts parts_in_use();

class RungContext {
 public:
  RungContext(const TestedParts& tested_parts, const ModelFactory& make_model, ThreadPool& thread_pool)
      : parts(tested_parts), pool(thread_pool), make_model_(make_model) {}

  const TestedParts& parts;
  ThreadPool& pool;
  // Of this row.
  DType dtype = DType::kF32;
  Formulation formulation = Formulation::kFused;

  // The synthetic model of this row's type.
  const TrainableModel& model();
  const std::filesystem::path& directory() const { return directory_.path(); }

  // What `make` gives for this row's type, computed once: oracles that are the same for every formulation.
  template <typename Make>
  auto& remembered(const std::string& what, Make make) {
    using T = decltype(make());
    std::any& kept = remembered_[{what, dtype}];
    if (!kept.has_value()) kept = make();
    return std::any_cast<T&>(kept);
  }

 private:
  const ModelFactory& make_model_;
  const ScratchDirectory directory_;
  std::map<DType, std::unique_ptr<TrainableModel>> models_;
  std::map<std::pair<std::string, DType>, std::any> remembered_;
};

}  // namespace patina
