// Values, nodes and symbolic extents: the graph that a model builds once and that runs many times.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/formulation.h"
#include "tensor/tensor.h"

namespace patina {

class GradientBuilder;
class Graph;
struct Node;

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// One dimension. Where `symbol` >= 0 the size varies from run to run (T, M, ...) and `size` is its maximum, which the
// memory plan uses. Only the outermost extent of a stored value may be symbolic; views may move it.
struct Extent {
  Extent(int64_t fixed_size) : size(fixed_size) {}  // NOLINT: implicit by design
  Extent(int64_t maximum, int symbol_index) : size(maximum), symbol(symbol_index) {}
  bool operator==(const Extent&) const = default;

  int64_t size;
  int symbol = -1;
};
using Extents = std::vector<Extent>;

enum class ValueKind : uint8_t {
  kInput,      // bound by the caller before each run
  kFrozen,     // base weight: any type, never written
  kTrainable,  // adapter parameter: F32, a slice of the flat trainable buffer
  kState,      // written in place and kept between runs: gradient accumulators, key-value caches
  kComputed,   // lives in the arena
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kComputed;
  DType dtype = DType::kF32;
  Extents extents;
  Shape strides;                     // in elements
  ValueId view_of = kNoValue;        // the value whose storage this is a view of
  int64_t offset = 0;                // of a view, in elements of the storage of view_of
  int producer = -1;                 // node, -1 for values that no node makes (any more)
  void* data = nullptr;              // external kinds: where it lies (may be bound later)
  const int32_t* row_map = nullptr;  // frozen weights, see Tensor
};

// An operation with its attributes. One class an op (src/ops/<op>.h); kernels are found by name in a backend.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::string_view name() const = 0;
  virtual std::string attributes() const { return {}; }  // for printed graphs: "eps=1e-05"
  // The input whose storage the first output may take over where that input dies here, or -1. Where the input is kState
  // its storage is always taken over.
  virtual int in_place_input() const { return -1; }
  // Appends the nodes of this node's gradient. InternalError where the op has none.
  virtual void gradient(GradientBuilder& builder, const Node& node) const;
};

struct Node {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;  // kNoValue for an optional input that is absent
  std::vector<ValueId> outputs;
  std::string label;      // where in the model: "layers.3.q"
  bool repeated = false;  // does again what an earlier node did
};

// What gradient rules see of differentiation (graph/differentiate.cc implements it).
class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;
  virtual Graph& graph() = 0;
  virtual ValueId dy(ValueId output) = 0;  // gradient of an output, kNoValue where nothing depends on it
  virtual bool wants(ValueId input) = 0;   // does this input need a gradient?
  // The gradient of `input` so far, kNoValue where there is none yet. The rule computes sum = so_far + its own part
  // (many kernels add in place) and hands it back to set_gradient.
  virtual ValueId so_far(ValueId input) = 0;
  virtual void set_gradient(ValueId input, ValueId sum) = 0;
  // For ops that cannot add by themselves: adds `part` to the gradient of `input`.
  virtual void contribute(ValueId input, ValueId part) = 0;
  // How frozen products are to be differentiated, and where their rule counts what it emitted.
  virtual Formulation formulation() const = 0;
  virtual FormulationCounts& formulations() = 0;
};

class Graph {
 public:
  // A symbol such as "T" with its maximum; returns an extent to use in shapes.
  Extent symbol(std::string_view name, int64_t maximum);
  int symbols() const { return static_cast<int>(symbols_.size()); }
  const std::string& symbol_name(int index) const { return symbols_.at(static_cast<size_t>(index)); }
  int64_t symbol_maximum(int index) const { return symbol_maxima_.at(static_cast<size_t>(index)); }

  ValueId input(std::string name, DType dtype, Extents extents);
  ValueId frozen(std::string name, const Tensor& weight);
  ValueId trainable(std::string name, const Shape& shape, float* data);
  ValueId state(std::string name, DType dtype, Extents extents, void* data);

  // Appends a node and its outputs (dense, of type `dtype`). Names are taken from the label and the op.
  std::vector<ValueId> node(std::shared_ptr<const Op> op, std::vector<ValueId> inputs, std::vector<Extents> outputs,
                            std::string_view label, DType dtype = DType::kF32);
  // Appends a node of one output that is a view of its input.
  ValueId view_node(std::shared_ptr<const Op> op, ValueId input, Extents extents, const Shape& strides, int64_t offset,
                    std::string_view label);

  // For passes over a finished graph. Appends node `node` once more, on other inputs of the same layout; returns its
  // new outputs.
  std::vector<ValueId> repeat(int node, std::vector<ValueId> inputs);
  // Node `node` reads `to` wherever it read `from`.
  void replace_input(int node, ValueId from, ValueId to);
  // Node `node` becomes another operation on other inputs that makes the same outputs.
  void replace(int node, std::shared_ptr<const Op> op, std::vector<ValueId> inputs, std::string label);
  // Brings the nodes into another order, given by their present indices. Those that are left out are gone, and so are
  // their outputs, which no other node may read.
  void reorder(const std::vector<int>& order);

  // Values the caller reads after a run: they stay alive to its end.
  void mark_output(ValueId value) { outputs_.push_back(value); }
  const std::vector<ValueId>& outputs() const { return outputs_; }

  Value& value(ValueId id) { return values_.at(static_cast<size_t>(id)); }
  const Value& value(ValueId id) const { return values_.at(static_cast<size_t>(id)); }
  int values() const { return static_cast<int>(values_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }
  // The value that owns the storage of `id`: follows views, not planned in-place reuse.
  ValueId storage(ValueId id) const;
  Shape maximum_shape(ValueId id) const;
  // Where symbol s has the size sizes[s]. A view may hold a multiple of a symbol, such as [T*H, C].
  Shape shape(ValueId id, std::span<const int64_t> sizes) const;
  // Whether the numbers of `id` lie one after another: no view with gaps, not transposed.
  bool contiguous(ValueId id) const { return value(id).strides == contiguous_strides(maximum_shape(id)); }
  // Bytes of a stored value at its maximum.
  int64_t maximum_bytes(ValueId id) const;

  // One line a node, with shapes: the same graph prints the same text.
  std::string print() const;

 private:
  ValueId add(Value value);
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> outputs_;
  std::vector<std::string> symbols_;
  std::vector<int64_t> symbol_maxima_;
};

}  // namespace patina
