// Wrong parts in the place of the right ones: each must make its rungs fail, and every rung must be able to fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "ops/frozen_linear.h"
#include "selftest/self_test.h"
#include "selftest/synthetic_lm.h"
#include "support/wrapped_backend.h"

namespace patina {
namespace {

using Names = std::vector<std::string>;

// A language model that builds or trains in another way.
class AlteredLm final : public SyntheticLm {
 public:
  using SyntheticLm::SyntheticLm;
  bool guard = true, honest_control = true;
  std::unique_ptr<TrainableGraph> build(Adapter* adapter, const TrainableOptions& options) const override {
    TrainableOptions altered = options;
    altered.guard_site = options.guard_site && guard;
    return SyntheticLm::build(adapter, altered);
  }
  std::vector<double> train(Adapter& adapter, const Course& course, const Backend& backend, ThreadPool& pool,
                            FunctionRef<void(int64_t)> after_step) const override {
    Course altered = course;
    altered.learnable = course.learnable || !honest_control;
    return SyntheticLm::train(adapter, altered, backend, pool, after_step);
  }
};

Subject altered_lm(bool guard, bool honest_control) {
  Subject subject = lm_subject();
  subject.make_model = [=](DType dtype, const std::filesystem::path& directory, ThreadPool& pool) {
    auto model = std::make_unique<AlteredLm>(dtype, directory, pool);
    model->guard = guard;
    model->honest_control = honest_control;
    return model;
  };
  return subject;
}

struct Planted {
  std::string what;
  Names rungs;  // that must fail
  TestedParts parts = parts_in_use();
  Subject lm = lm_subject();
  WrappedBackend::Hook hook = {};  // around every kernel
};

// Rungs that failed in a row of a formulation, of any where none is given.
std::set<std::string> failed(const Planted& fault, std::optional<Formulation> formulation = {}) {
  const std::vector<Subject> subjects = {product_subject(), fault.lm};
  ThreadPool pool(2);
  std::optional<WrappedBackend> backend;
  TestedParts parts = fault.parts;
  if (fault.hook) parts.backend = &backend.emplace(cpu_backend(), fault.hook);
  SelfTestOptions options{.only = fault.rungs, .formulations = {}, .types = {DType::kF32}};
  if (formulation) options.formulations = {*formulation};
  std::set<std::string> names;
  run_self_test(subjects, options, parts, pool, [&](const RungRow& row) {
    if (!row.passed) names.emplace(row.rung->name);
  });
  return names;
}

Planted in_backend(std::string what, Names rungs, WrappedBackend::Hook hook) {
  Planted fault{.what = std::move(what), .rungs = std::move(rungs)};
  fault.hook = std::move(hook);
  return fault;
}

// What an op's kernel should have written, made wrong afterwards.
using Corruption = std::function<void(const Op&, std::span<const Tensor> in, std::span<const Tensor> out)>;
Planted after(std::string what, std::string_view op_name, Names rungs, Corruption corrupt) {
  return in_backend(std::move(what), std::move(rungs),
                    [=](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in,
                        std::span<const Tensor> out, KernelContext& context) {
                      kernel.run(op, in, out, context);
                      if (op.name() == op_name) corrupt(op, in, out);
                    });
}

void scale(const Tensor& out, float factor) {
  for (int64_t i = 0; i < out.shape.elements(); ++i) out.f32()[i] *= factor;
}
// Each row has what belongs to the one before it.
void shift_rows(const Tensor& out) {
  std::rotate(out.f32(), out.f32() + out.shape.elements() - out.shape[1], out.f32() + out.shape.elements());
}
bool is_backward(const Op& op) {
  return static_cast<const FrozenLinear&>(op).direction == FrozenLinear::Direction::kBackward;
}

std::vector<Planted> faults_of_kernels() {
  std::vector<Planted> faults;
  const auto plant = [&](Planted fault) { faults.push_back(std::move(fault)); };
  plant(after("sign of dx", "frozen_linear", {"P2", "P3", "P4", "P5", "T4", "LK4", "SC3"},
              [](const Op& op, auto, auto out) { scale(out[0], is_backward(op) ? -1 : 1); }));
  plant(after("y a thousandth too large", "frozen_linear", {"P1", "P3", "T7", "LK3"},
              [](const Op& op, auto, auto out) { scale(out[0], is_backward(op) ? 1 : 1.001f); }));
  plant(after("loss a thousandth too large", "head_loss", {"T7", "LM3", "LM4"},
              [](const Op&, auto, auto out) { scale(out[0], 1.001f); }));
  plant(after("no gradient of the loss", "head_loss", {"T5", "LM3", "LM4"}, [](const Op&, auto, auto out) {
    if (out[1].present()) scale(out[1], 0);
  }));
  plant(after("no gradient of logits", "cross_entropy_grad", {"T6", "T4", "LM4"},
              [](const Op&, auto, auto out) { scale(out[0], 0); }));
  plant(after("attention off by one row", "attention", {"T7", "LM5", "LM1", "SB1", "SB2"},
              [](const Op&, auto, auto out) { shift_rows(out[0]); }));
  plant(after("sign of the gradient of attention", "attention_grad", {"LM5", "T4"},
              [](const Op&, auto, auto out) { scale(out[2], -1); }));
  plant(after("sign of the gradient of w1", "mix_blocks_grad", {"LK4"},
              [](const Op&, auto, auto out) { scale(out[0], -1); }));
  plant(after("w1's product a thousandth too large", "mix_blocks", {"LK3"},
              [](const Op&, auto, auto out) { scale(out[0], 1.001f); }));
  plant(after("rows depend on how many there are", "swiglu", {"SB1", "SB2", "SB3", "SC2"},
              [](const Op&, auto, auto out) { scale(out[0], 1 + 1e-3f * static_cast<float>(out[0].shape[0])); }));
  plant(
      after("the cache off by one row", "cache_append", {"T3"}, [](const Op&, auto, auto out) { shift_rows(out[0]); }));
  plant(in_backend("the last bit depends on the threads", {"P4"},
                   [](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                      KernelContext& context) {
                     kernel.run(op, in, out, context);
                     if (op.name() == "frozen_linear" && context.pool.size() > 1)
                       out[0].f32()[3] = std::nextafter(out[0].f32()[3], 0.0f);
                   }));
  // The forward part calls rms_norm twice a layer and once behind them; what comes after is recompute.
  auto calls = std::make_shared<int>(0);
  plant(in_backend("recompute makes other numbers", {"SC1", "SC3", "LM6"},
                   [=](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                       KernelContext& context) {
                     kernel.run(op, in, out, context);
                     if (op.name() == "embedding") *calls = 0;
                     if (op.name() == "rms_norm" && ++*calls > 2 * SyntheticLm::kLayers + 1) scale(out[0], 1.01f);
                   }));
  auto kept = std::make_shared<std::vector<std::vector<char>>>();
  plant(after("memory that is never given back", "embedding", {"LM7"},
              [=](const Op&, auto, auto) { kept->emplace_back(size_t{1} << 16, 'x'); }));
  return faults;
}

std::vector<Planted> faults_of_parts() {
  std::vector<Planted> faults;
  const auto plant = [&](std::string what, Names rungs) -> TestedParts& {
    faults.push_back({.what = std::move(what), .rungs = std::move(rungs)});
    return faults.back().parts;
  };
  plant("an adapter of another rank", {"T2"}).make_adapter = [](std::span<const Site> sites, AdapterOptions options) {
    ++options.rank;
    return std::make_unique<Adapter>(sites, options);
  };
  plant("an adapter that does not begin at zero", {"T6", "LK2"}).make_adapter = [](std::span<const Site> sites,
                                                                                   const AdapterOptions& options) {
    auto adapter = std::make_unique<Adapter>(sites, options);
    for (size_t i = 0; i < adapter->parameters().slices().size(); ++i) adapter->parameters().value(i)[0] += 0.5f;
    return adapter;
  };
  const auto write = [](auto change) {
    return [=](AdapterFormat format, const std::filesystem::path& path, AdapterFile file, const AdapterBase& base) {
      change(file);
      write_adapter(format, path, file, base);
    };
  };
  plant("a file without one site", {"T1", "LK5"}).write_adapter =
      write([](AdapterFile& file) { file.sites.pop_back(); });
  plant("a file with two sites exchanged", {"T1", "LK5"}).write_adapter =
      write([](AdapterFile& file) { std::swap(file.sites[1].factors, file.sites[2].factors); });
  plant("a file with the last bit of an alpha wrong", {"LK5"}).write_adapter = write([](AdapterFile& file) {
    for (AdaptedSite& site : file.sites)
      if (auto* const lokr = std::get_if<LokrFactors>(&site.factors)) lokr->alpha = std::nextafter(lokr->alpha, 99.0f);
  });
  plant("no weight decay", {"T11", "MU1"}).make_optimizer = [](const ParameterStore& store, OptimizerOptions options) {
    options.weight_decay = 0;
    return make_optimizer(store, options);
  };
  plant("bias correction off by one step", {"T11"}).make_optimizer = [](const ParameterStore& store,
                                                                        const OptimizerOptions& options) {
    auto optimizer = make_optimizer(store, options);
    optimizer->set_steps(1);
    return optimizer;
  };
  plant("AdamW in the place of Muon", {"MU1"}).make_optimizer = [](const ParameterStore& store,
                                                                   OptimizerOptions options) {
    options.kind = OptimizerKind::kAdamW;
    return make_optimizer(store, options);
  };
  plant("no clipping", {"T11"}).clip = [](std::span<float>, double, double, ThreadPool&) { return 1.0; };
  plant("learning rate off by one step", {"LM2"}).learning_rate = [](const ScheduleOptions& options, int64_t step) {
    return learning_rate(options, std::min(step + 1, options.total_steps - 1));
  };
  plant("LoKr's factors the other way round", {"LK1"}).lokr_shape = [](int64_t out, int64_t in, int64_t dim,
                                                                       float alpha, int64_t factor, bool both) {
    LokrShape shape = lokr_shape(out, in, dim, alpha, factor, both);
    std::swap(shape.w1.rows, shape.w2.rows);
    return shape;
  };
  plant("labels off by one", {"LM1"}).fill = [](MicroBatch& batch, std::span<const Sequence> sequences,
                                                std::span<const size_t> which) {
    fill(batch, sequences, which);
    std::rotate(batch.labels.begin(), batch.labels.begin() + 1, batch.labels.end());
  };
  faults.push_back({.what = "a control that can be learnt", .rungs = {"T5"}, .lm = altered_lm(true, false)});
  return faults;
}

TEST(PlantedFaults, EachMakesItsRungsFail) {
  std::set<std::string> can_fail;
  for (const auto& make : {faults_of_kernels, faults_of_parts}) {
    const std::vector<Planted> faults = make();
    for (const Planted& fault : faults) {
      const std::set<std::string> found = failed(fault);
      for (const std::string& rung : fault.rungs) EXPECT_TRUE(found.contains(rung)) << fault.what << ": " << rung;
      can_fail.insert(found.begin(), found.end());
    }
  }
  for (const Subject& subject : {product_subject(), lm_subject()})
    for (const Rungs& table : subject.tables)
      for (const Rung& rung : table)
        EXPECT_TRUE(can_fail.contains(std::string(rung.name))) << "no fault makes " << rung.name << " fail";
}

// A transposed copy that is made once and kept, though k and v have other weights of its shape.
TEST(PlantedFaults, AStaleTransposedCopyFailsMmAlone) {
  std::map<std::string, std::vector<std::byte>> kept;
  const Planted fault =
      in_backend("stale cache", {"T4", "LK4", "SC3"},
                 [&](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                     KernelContext& context) {
                   kernel.run(op, in, out, context);
                   if (op.name() != "transposed_copy") return;
                   auto* const data = static_cast<std::byte*>(out[0].data);
                   const size_t bytes = static_cast<size_t>(bytes_of(out[0].dtype, out[0].shape.elements()));
                   const auto [entry, first] = kept.try_emplace(out[0].shape.str(), data, data + bytes);
                   if (!first) std::copy(entry->second.begin(), entry->second.end(), data);
                 });
  EXPECT_EQ(failed(fault, Formulation::kMm), (std::set<std::string>{"T4", "LK4", "SC3"}));
  EXPECT_TRUE(failed(fault, Formulation::kFused).empty());
  EXPECT_TRUE(failed(fault, Formulation::kOutprod).empty());
}

// Without the guard a gradient with gaps is taken as if it had none; and where no product needs the guard, nothing is
// proven about it.
TEST(PlantedFaults, NoGuard) {
  const Planted wrong = in_backend("no guard", {"P5", "SC3"},
                                   [](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in,
                                      std::span<const Tensor> out, KernelContext& context) {
                                     std::vector<Tensor> inputs(in.begin(), in.end());
                                     if (op.name() == "outer_product")
                                       inputs[0].strides = contiguous_strides(inputs[0].shape);
                                     kernel.run(op, inputs, out, context);
                                   });
  EXPECT_EQ(failed(wrong, Formulation::kMm), (std::set<std::string>{"P5", "SC3"}));
  const Planted absent{.what = "no place for the guard", .rungs = {"SC3"}, .lm = altered_lm(false, true)};
  EXPECT_EQ(failed(absent, Formulation::kMm), (std::set<std::string>{"SC3"}));
  EXPECT_TRUE(failed(absent, Formulation::kFused).empty());
}

TEST(PlantedFaults, WhatARungThrowsFailsItsRow) {
  Planted fault{.what = "throws", .rungs = {"LM2"}};
  fault.parts.learning_rate = [](const ScheduleOptions&, int64_t) -> double { throw std::runtime_error("broken"); };
  EXPECT_EQ(failed(fault), (std::set<std::string>{"LM2"}));
}

}  // namespace
}  // namespace patina
