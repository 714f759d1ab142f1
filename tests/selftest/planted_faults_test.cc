// Wrong parts in the place of the right ones: each must make its rungs fail, and every rung must be able to fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "ops/frozen_linear.h"
#include "selftest/self_test.h"
#include "selftest/synthetic_dit.h"
#include "selftest/synthetic_lm.h"
#include "support/wrapped_backend.h"

namespace patina {
namespace {

using Names = std::vector<std::string>;

// A model that builds or trains in another way.
template <typename Model>
class Altered final : public Model {
 public:
  using Model::Model;
  bool guard = true, honest_control = true;
  std::unique_ptr<TrainableGraph> build(Adapter* adapter, const TrainableOptions& options) const override {
    TrainableOptions altered = options;
    altered.guard_site = options.guard_site && guard;
    return Model::build(adapter, altered);
  }
  std::vector<double> train(Adapter& adapter, const Course& course, const Backend& backend, ThreadPool& pool,
                            FunctionRef<void(int64_t)> after_step) const override {
    Course altered = course;
    altered.learnable = course.learnable || !honest_control;
    return Model::train(adapter, altered, backend, pool, after_step);
  }
};

template <typename Model>
Subject altered(Subject subject, bool guard, bool honest_control) {
  subject.make_model = [=](DType dtype, const std::filesystem::path& directory, ThreadPool& pool) {
    auto model = std::make_unique<Altered<Model>>(dtype, directory, pool);
    model->guard = guard;
    model->honest_control = honest_control;
    return model;
  };
  return subject;
}

struct Planted {
  std::string what;
  Names rungs;     // of the product and of the language model that must fail
  Names dit = {};  // of the diffusion transformer
  TestedParts parts = parts_in_use();
  WrappedBackend::Hook hook = {};  // around every kernel
  // In the place of the models: without a place for the guard, or trained on what can be learnt where it should not be.
  bool guard = true, honest_control = true;
};

using Failed = std::set<std::pair<std::string, std::string>>;  // subjects and rungs
constexpr const char* kDit = "dit";

// Rungs that failed in a row of a formulation, of any where none is given.
Failed failed(const Planted& fault, std::optional<Formulation> formulation = {}) {
  ThreadPool pool(2);
  std::optional<WrappedBackend> backend;
  TestedParts parts = fault.parts;
  if (fault.hook) parts.backend = &backend.emplace(cpu_backend(), fault.hook);
  Failed found;
  const auto run = [&](const std::vector<Subject>& subjects, const Names& rungs) {
    if (rungs.empty()) return;
    SelfTestOptions options{.only = rungs, .formulations = {}, .types = {DType::kF32}};
    if (formulation) options.formulations = {*formulation};
    run_self_test(subjects, options, parts, pool, [&](const RungRow& row) {
      if (!row.passed) found.emplace(row.subject, row.rung->name);
    });
  };
  run({product_subject(), altered<SyntheticLm>(lm_subject(), fault.guard, fault.honest_control)}, fault.rungs);
  run({altered<SyntheticDit>(dit_subject(), fault.guard, fault.honest_control)}, fault.dit);
  return found;
}

// What is left of a fault's rungs without those that failed: "dit T4".
Names survivors(const Planted& fault, const Failed& found) {
  Names left;
  for (const std::string& rung : fault.rungs)
    if (std::ranges::none_of(found, [&](const auto& one) { return one.first != kDit && one.second == rung; }))
      left.push_back(rung);
  for (const std::string& rung : fault.dit)
    if (!found.contains({kDit, rung})) left.push_back(fmt::format("{} {}", kDit, rung));
  return left;
}

Planted in_backend(std::string what, Names rungs, Names dit, WrappedBackend::Hook hook) {
  Planted fault{.what = std::move(what), .rungs = std::move(rungs), .dit = std::move(dit)};
  fault.hook = std::move(hook);
  return fault;
}

// What an op's kernel should have written, made wrong afterwards.
using Corruption = std::function<void(const Op&, std::span<const Tensor> in, std::span<const Tensor> out)>;
Planted after(std::string what, std::string_view op_name, Names rungs, Names dit, Corruption corrupt) {
  return in_backend(std::move(what), std::move(rungs), std::move(dit),
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
  plant(after("sign of dx", "frozen_linear", {"P2", "P3", "P4", "P5", "T4", "LK4", "SC3"}, {"T4", "LK4", "SC3"},
              [](const Op& op, auto, auto out) { scale(out[0], is_backward(op) ? -1 : 1); }));
  plant(after("y a thousandth too large", "frozen_linear", {"P1", "P3", "T7", "LK3"}, {"T7", "LK3"},
              [](const Op& op, auto, auto out) { scale(out[0], is_backward(op) ? 1 : 1.001f); }));
  plant(after("loss a thousandth too large", "head_loss", {"T7", "LM3", "LM4"}, {},
              [](const Op&, auto, auto out) { scale(out[0], 1.001f); }));
  plant(after("no gradient of the loss", "head_loss", {"T5", "LM3", "LM4"}, {}, [](const Op&, auto, auto out) {
    if (out[1].present()) scale(out[1], 0);
  }));
  plant(after("no gradient of logits", "cross_entropy_grad", {"T6", "T4", "LM4"}, {},
              [](const Op&, auto, auto out) { scale(out[0], 0); }));
  plant(after("attention off by one row", "attention", {"T7", "LM5", "LM1", "SB1", "SB2"}, {"T7", "T3", "SB1", "SB2"},
              [](const Op&, auto, auto out) { shift_rows(out[0]); }));
  plant(after("sign of the gradient of attention", "attention_grad", {"LM5", "T4"}, {"T4", "LK4"},
              [](const Op&, auto, auto out) { scale(out[2], -1); }));
  plant(after("sign of the gradient of w1", "mix_blocks_grad", {"LK4"}, {"LK4"},
              [](const Op&, auto, auto out) { scale(out[0], -1); }));
  plant(after("w1's product a thousandth too large", "mix_blocks", {"LK3"}, {"LK3"},
              [](const Op&, auto, auto out) { scale(out[0], 1.001f); }));
  plant(after("rows depend on how many there are", "swiglu", {"SB1", "SB2", "SB3", "SC2"},
              {"T3", "SB1", "SB2", "SB3", "SC2"},
              [](const Op&, auto, auto out) { scale(out[0], 1 + 1e-3f * static_cast<float>(out[0].shape[0])); }));
  plant(after("the cache off by one row", "cache_append", {"T3"}, {},
              [](const Op&, auto, auto out) { shift_rows(out[0]); }));
  plant(in_backend("the last bit depends on the threads", {"P4"}, {},
                   [](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                      KernelContext& context) {
                     kernel.run(op, in, out, context);
                     if (op.name() == "frozen_linear" && context.pool.size() > 1)
                       out[0].f32()[3] = std::nextafter(out[0].f32()[3], 0.0f);
                   }));
  // A run begins with this op, and its forward part calls rms_norm so many times; what comes after is recompute.
  const auto recomputed_otherwise = [](std::string_view first_op, int forward_norms) -> WrappedBackend::Hook {
    auto calls = std::make_shared<int>(0);
    return [=](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
               KernelContext& context) {
      kernel.run(op, in, out, context);
      if (op.name() == first_op) *calls = 0;
      if (op.name() == "rms_norm" && ++*calls > forward_norms) scale(out[0], 1.01f);
    };
  };
  plant(in_backend("recompute makes other numbers", {"SC1", "SC3", "LM6"}, {},
                   recomputed_otherwise("embedding", 2 * SyntheticLm::kLayers + 1)));
  plant(in_backend("recompute makes other numbers of songs", {}, {"SC1", "SC3"},
                   recomputed_otherwise("silu", 7 * SyntheticDit::kLayers + 1)));
  auto kept = std::make_shared<std::vector<std::vector<char>>>();
  const auto keep = [=](const Op&, auto, auto) { kept->emplace_back(size_t{1} << 16, 'x'); };
  plant(after("memory that is never given back", "embedding", {"LM7"}, {}, keep));
  plant(after("memory that songs never give back", "squared_error", {}, {"LM7"}, keep));
  plant(after("loss of songs a thousandth too large", "squared_error", {}, {"T7"},
              [](const Op&, auto, auto out) { scale(out[0], 1.001f); }));
  plant(after("no gradient of songs' loss", "squared_error_grad", {}, {"T4", "LK4", "T5", "T6"},
              [](const Op&, auto, auto out) { scale(out[0], 0); }));
  plant(after("modulation off by one row", "modulate", {}, {"T7", "SB1"},
              [](const Op&, auto, auto out) { shift_rows(out[0]); }));
  return faults;
}

std::vector<Planted> faults_of_parts() {
  std::vector<Planted> faults;
  const auto plant = [&](std::string what, Names rungs, Names dit = {}) -> TestedParts& {
    faults.push_back({.what = std::move(what), .rungs = std::move(rungs), .dit = std::move(dit)});
    return faults.back().parts;
  };
  plant("an adapter of another rank", {"T2"}, {"T2"}).make_adapter = [](std::span<const Site> sites,
                                                                        AdapterOptions options) {
    ++options.rank;
    return std::make_unique<Adapter>(sites, options);
  };
  plant("an adapter that does not begin at zero", {"T6", "LK2"}, {"T6", "LK2"}).make_adapter =
      [](std::span<const Site> sites, const AdapterOptions& options) {
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
  plant("a file without one site", {"T1", "LK5"}, {"T1", "LK5"}).write_adapter =
      write([](AdapterFile& file) { file.sites.pop_back(); });
  plant("a file with two sites exchanged", {"T1", "LK5"}, {"T1", "LK5"}).write_adapter =
      write([](AdapterFile& file) { std::swap(file.sites[1].factors, file.sites[2].factors); });
  plant("a file with the last bit of an alpha wrong", {"LK5"}, {"LK5"}).write_adapter = write([](AdapterFile& file) {
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
  faults.push_back({.what = "a control that can be learnt", .rungs = {"T5"}, .dit = {"T5"}, .honest_control = false});
  return faults;
}

// What is drawn for songs, and what becomes of it.
std::vector<Planted> faults_of_flow() {
  std::vector<Planted> faults;
  const auto plant = [&](std::string what, Names dit) -> TestedParts& {
    faults.push_back({.what = std::move(what), .rungs = {}, .dit = std::move(dit)});
    return faults.back().parts;
  };
  const auto fill_then = [](auto change) {
    return
        [=](FlowBatch& batch, std::span<const Song> songs, std::span<const FlowDraw> draws, const FlowLayout& layout) {
          fill(batch, songs, draws, layout);
          change(batch);
        };
  };
  plant("a target the other way round", {"T9"}).fill_flow = fill_then([](FlowBatch& batch) {
    for (float& v : batch.target) v = -v;
  });
  plant("a target off by one row", {"T9"}).fill_flow = fill_then(
      [](FlowBatch& batch) { std::rotate(batch.target.begin(), batch.target.begin() + 8, batch.target.end()); });
  plant("weights that are not divided by their mean", {"T8"}).weigh_draws = [](std::span<FlowDraw> draws,
                                                                               const FlowOptions& options) {
    for (FlowDraw& draw : draws) draw.weight = options.snr_weighting ? flow_snr(draw.t, options) : 1.0;
  };
  plant("weights divided by each song's own mean", {"T8"}).weigh_draws = [](std::span<FlowDraw> draws,
                                                                            const FlowOptions& options) {
    for (FlowDraw& draw : draws) weigh_draws(std::span(&draw, 1), options);
  };
  const auto crop_then = [](auto change) {
    return [=](const Song& song, size_t index, const FlowOptions& options, int64_t patch, uint64_t seed, int64_t step) {
      FlowDraw draw = draw_flow(song, index, options, patch, seed, step);
      change(draw, song);
      return draw;
    };
  };
  plant("crops off by one frame", {"T10"}).draw_flow =
      crop_then([](FlowDraw& draw, const Song&) { draw.first_frame += 1; });
  plant("no crop at the end", {"T10"}).draw_flow = crop_then([](FlowDraw& draw, const Song& song) {
    if (draw.first_frame > 0 && draw.first_frame + draw.frames + 2 > song.frames()) draw.first_frame -= 2;
  });
  plant("twice as many crops in the first half", {"T10"}).draw_flow = crop_then([](FlowDraw& draw, const Song& song) {
    if (draw.first_frame > song.frames() / 2 && draw.first_frame % 4 == 0) draw.first_frame -= song.frames() / 4 * 2;
  });
  return faults;
}

TEST(PlantedFaults, EachMakesItsRungsFail) {
  Failed can_fail;
  for (const auto& make : {faults_of_kernels, faults_of_parts, faults_of_flow}) {
    const std::vector<Planted> faults = make();
    for (const Planted& fault : faults) {
      const Failed found = failed(fault);
      EXPECT_EQ(survivors(fault, found), Names{}) << fault.what;
      can_fail.insert(found.begin(), found.end());
    }
  }
  for (const Subject& subject : {product_subject(), lm_subject(), dit_subject()})
    for (const Rungs& table : subject.tables)
      for (const Rung& rung : table)
        EXPECT_TRUE(can_fail.contains({std::string(subject.name), std::string(rung.name)}))
            << "no fault makes " << rung.name << " fail on " << subject.name;
}

// A transposed copy that is made once and kept, though k and v have other weights of its shape.
TEST(PlantedFaults, AStaleTransposedCopyFailsMmAlone) {
  std::map<std::string, std::vector<std::byte>> kept;
  const Planted fault =
      in_backend("stale cache", {"T4", "LK4", "SC3"}, {"T4", "LK4", "SC3"},
                 [&](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in, std::span<const Tensor> out,
                     KernelContext& context) {
                   kernel.run(op, in, out, context);
                   if (op.name() != "transposed_copy") return;
                   auto* const data = static_cast<std::byte*>(out[0].data);
                   const size_t bytes = static_cast<size_t>(bytes_of(out[0].dtype, out[0].shape.elements()));
                   const auto [entry, first] = kept.try_emplace(out[0].shape.str(), data, data + bytes);
                   if (!first) std::copy(entry->second.begin(), entry->second.end(), data);
                 });
  EXPECT_EQ(failed(fault, Formulation::kMm),
            (Failed{{"lm", "T4"}, {"lm", "LK4"}, {"lm", "SC3"}, {kDit, "T4"}, {kDit, "LK4"}, {kDit, "SC3"}}));
  EXPECT_TRUE(failed(fault, Formulation::kFused).empty());
  EXPECT_TRUE(failed(fault, Formulation::kOutprod).empty());
}

// Without the guard a gradient with gaps is taken as if it had none; and where no product needs the guard, nothing is
// proven about it.
TEST(PlantedFaults, NoGuard) {
  const Planted wrong = in_backend("no guard", {"P5", "SC3"}, {"SC3"},
                                   [](const KernelEntry& kernel, const Op& op, std::span<const Tensor> in,
                                      std::span<const Tensor> out, KernelContext& context) {
                                     std::vector<Tensor> inputs(in.begin(), in.end());
                                     if (op.name() == "outer_product")
                                       inputs[0].strides = contiguous_strides(inputs[0].shape);
                                     kernel.run(op, inputs, out, context);
                                   });
  EXPECT_EQ(failed(wrong, Formulation::kMm), (Failed{{"product", "P5"}, {"lm", "SC3"}, {kDit, "SC3"}}));
  const Planted absent{.what = "no place for the guard", .rungs = {"SC3"}, .dit = {"SC3"}, .guard = false};
  EXPECT_EQ(failed(absent, Formulation::kMm), (Failed{{"lm", "SC3"}, {kDit, "SC3"}}));
  EXPECT_TRUE(failed(absent, Formulation::kFused).empty());
}

TEST(PlantedFaults, WhatARungThrowsFailsItsRow) {
  Planted fault{.what = "throws", .rungs = {"LM2"}};
  fault.parts.learning_rate = [](const ScheduleOptions&, int64_t) -> double { throw std::runtime_error("broken"); };
  EXPECT_EQ(failed(fault), (Failed{{"product", "LM2"}}));
}

}  // namespace
}  // namespace patina
