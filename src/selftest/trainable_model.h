// What the rungs need of a model that can be trained, so that the same rungs serve every kind of model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapter/adapter.h"
#include "adapter/files.h"
#include "backend/backend.h"
#include "base/function_ref.h"
#include "graph/differentiate.h"
#include "model/decoder_lm.h"

namespace patina {

// Items of a model's synthetic data set, by index, that go through its graph together.
using Items = std::vector<size_t>;

// What a run of a graph binds; it stays valid until the next one is asked for.
struct Feed {
  std::vector<int64_t> sizes;
  std::vector<std::pair<ValueId, const void*>> inputs;
};

struct TrainableOptions {
  std::optional<GradientOptions> gradients;  // none: the loss alone
  // Adds a term to the loss in which a product's gradient arrives as a slice of columns, where mm has to give way
  // (selftest/guard_site.h): no model of ours contains such a place by itself.
  bool guard_site = false;
};

// The loss of items, a sum over them, as a graph.
class TrainableGraph {
 public:
  virtual ~TrainableGraph() = default;
  virtual const Graph& graph() const = 0;
  virtual ValueId loss() const = 0;                            // [1]
  virtual const Differentiation& differentiation() const = 0;  // empty without gradients
  virtual int repeated_nodes() const = 0;                      // of the forward part, run again in backward
  // `padding`: so many rows more that mean nothing, behind the items and between them where the model has such.
  virtual Feed feed(const Items& items, int64_t padding) = 0;
};

// What a model is trained on.
struct Course {
  int64_t steps;
  double learning_rate;
  GradientOptions gradients;
  // A few items again and again; otherwise none twice, in which there is nothing to learn.
  bool learnable = true;
};

class TrainableModel {
 public:
  static constexpr int64_t kMostPadding = 7;

  virtual ~TrainableModel() = default;

  // All adaptable layers with their weights, bottom up.
  virtual std::vector<Site> sites() const = 0;
  // Of its synthetic data set: at least 4, of different lengths.
  virtual size_t items() const = 0;
  // With an adapter, or the model alone. The adapter must outlive the graph.
  virtual std::unique_ptr<TrainableGraph> build(Adapter* adapter, const TrainableOptions& options) const = 0;
  // The loss by a double-precision computation that shares no code with the graph.
  virtual double exact_loss(std::span<const AdaptedSite> adapter, const Items& items) const = 0;
  // Runs its trainer; returns the loss of each step. `after_step` gets the number of steps done.
  virtual std::vector<double> train(Adapter& adapter, const Course& course, const Backend& backend, ThreadPool& pool,
                                    FunctionRef<void(int64_t)> after_step) const = 0;

  // For files: what writers need, and what PEFT calls the layer ("model.layers.0.self_attn.q_proj"), from a table of
  // its own.
  virtual AdapterBase base() const = 0;
  virtual std::string module_of(const Site& site) const = 0;
};

}  // namespace patina
