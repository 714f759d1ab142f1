// Adapters: how a trainable change is added to frozen linear layers. Models call linear() for every adaptable layer and know
// nothing else about adapters.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/parameters.h"
#include "ir/graph.h"

namespace patina {

// One adaptable linear layer of a model.
struct Site {
  int layer;         // -1 for lm_head
  std::string name;  // canonical: q, k, v, o, gate, up, down, lm_head
  int64_t in, out;   // W [out,in]
};

class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual std::string_view kind() const = 0;  // "lora"
  // y [T,out] = acc + adapted(W) x. Appends the frozen product and, where the site is adapted, the adapter's branch.
  virtual ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site, bool few_rows) = 0;
  // Trainable values that the last built graph uses, and the states that accumulate their gradients: for differentiate().
  virtual std::map<ValueId, ValueId> gradients(Graph& graph) = 0;
  virtual ParameterStore& parameters() = 0;
};

// The hook that models call: the adapter's linear(), or the frozen product alone where there is none.
ValueId linear(Graph& graph, Adapter* adapter, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site, bool few_rows);

}  // namespace patina
