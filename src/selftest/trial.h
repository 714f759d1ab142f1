// Adapters on a synthetic model, and runs of its graph: what the rungs on training are made of.
#pragma once

#include <complex>
#include <span>
#include <string_view>
#include <vector>

#include "adapter/prelude.h"
#include "graph/executor.h"
#include "selftest/context.h"

namespace patina {

// The adapters that rungs try. LoKr's w1 and w2 are whole in the first layer; above, w2 is a product. The last has both
// as products.
struct TriedAdapter {
  std::string_view name;
  AdapterOptions options;
};
const TriedAdapter& lora();
const TriedAdapter& dora();
const TriedAdapter& lokr();
const TriedAdapter& lokr_both();

// Sites of layers, without those that belong to none: an output head.
std::vector<Site> layer_sites(const TrainableModel& model);

std::unique_ptr<Adapter> fresh_adapter(const RungContext& context, std::span<const Site> sites,
                                       const TriedAdapter& tried);
// As in the middle of a training: every parameter is changed, and none is zero.
std::unique_ptr<Adapter> disturbed_adapter(const RungContext& context, std::span<const Site> sites,
                                           const TriedAdapter& tried);

std::vector<double> random_normals(int64_t count, uint32_t stream);

struct LossAndGradient {
  double loss = 0;
  std::vector<double> gradient;  // in the layout of the adapter's buffers; empty without gradients
};

// A graph of a model with an adapter, ready to run.
class Trial {
 public:
  static constexpr float kScale = 0.125f;  // of the gradient: a power of two

  Trial(RungContext& context, Adapter* adapter, const TrainableOptions& options);

  // Sums over micro-batches, on gradients of zero.
  LossAndGradient run(std::span<const Items> micro_batches, int64_t padding = 0);
  LossAndGradient run(const Items& items, int64_t padding = 0) { return run(std::span(&items, 1), padding); }

  const TrainableGraph& graph() const { return *graph_; }

 private:
  Adapter* const adapter_;
  const std::unique_ptr<TrainableGraph> graph_;
  Executor executor_;
  Prelude prelude_;
  float scale_ = kScale;
};

// Loss and gradient in double precision, and what no gradient rule is part of: exact derivatives along directions in
// which every number of every parameter moves, by a complex step of the forward part (Squire and Trapp, SIAM Review 40,
// 1998). Each parameter's gradient has the norm 1 in them, so that each counts.
struct ExactGradients {
  LossAndGradient exact;
  struct Direction {
    std::vector<double> along;  // in the layout of the adapter's buffers
    double derivative;
  };
  std::vector<Direction> directions;
};
ExactGradients exact_gradients(RungContext& context, Adapter& adapter, const Items& items);

}  // namespace patina
