// What the programs here share: a graph on one backend, with its leaves filled from a fixed seed, its reverse pass
// built by the library under test. The same source compiles against every ggml release that scripts/fetch-ggml.sh
// knows.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

[[noreturn]] inline void die(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

/// The counters of the change, looked up as any program may: a library without it has no such function (-3).
inline int64_t backward_mm_stat(const char* name) {
  using Stat = int64_t (*)(const char*);
  static const Stat stat = reinterpret_cast<Stat>(dlsym(RTLD_DEFAULT, "ggml_backward_mm_stat"));
  return stat ? stat(name) : -3;
}

inline void print_stats(std::FILE* out) {
  for (const char* name : {"gate", "frozen", "converted", "kept", "kept_grad", "kept_type", "kept_scope"}) {
    std::fprintf(out, "stat %s %lld\n", name, static_cast<long long>(backward_mm_stat(name)));
  }
}

/// splitmix64, and Box and Muller's transform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double uniform() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  float normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }

 private:
  uint64_t state_;
};

/// FNV-1a.
inline uint64_t seed_of(const std::string& name) {
  uint64_t seed = 0xcbf29ce484222325u;
  for (const char c : name) {
    seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return seed;
}

// ggml's interface changed between the releases; the newest form comes first.
template <typename T = ggml_tensor*>
void set_param(ggml_context* context, T tensor) {
  if constexpr (std::is_invocable_v<decltype(&ggml_set_param), T>) {
    (void)context;
    ggml_set_param(tensor);
  } else {
    ggml_set_param(context, tensor);
  }
}

template <typename T = ggml_cgraph*>
void build_backward(ggml_context* context, T graph) {
  if constexpr (std::is_invocable_v<decltype(&ggml_build_backward_expand), ggml_context*, T, ggml_tensor**>) {
    ggml_build_backward_expand(context, graph, nullptr);
  } else {
    ggml_build_backward_expand(context, context, graph, false);
  }
}

inline ggml_backend_t make_backend(bool gpu, int threads) {
  if (gpu) {
    ggml_backend_t backend = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_GPU, nullptr);
    return backend ? backend : (die("no GPU backend in this build, or no GPU"), nullptr);
  }
  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, threads);
  return backend;
}

/// One graph: leaves (weights, inputs, parameters) live in their own buffer, everything else where the allocator puts
/// it.
class Graph {
 public:
  explicit Graph(ggml_backend_t backend, size_t size = 8192) : backend_(backend) {
    leaves_ = ggml_init({ggml_tensor_overhead() * 2048, nullptr, true});
    nodes_ = ggml_init({ggml_tensor_overhead() * size + ggml_graph_overhead_custom(size, true), nullptr, true});
    graph_ = ggml_new_graph_custom(nodes_, size, true);
  }
  ~Graph() {
    ggml_gallocr_free(allocator_);
    ggml_backend_buffer_free(buffer_);
    ggml_free(nodes_);
    ggml_free(leaves_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  ggml_context* nodes() const { return nodes_; }
  ggml_cgraph* graph() const { return graph_; }

  /// A leaf with normal values times `scale`, in any type; its values follow from its name and shape alone. Where
  /// `through` is another type, they are what that type holds of them.
  ggml_tensor* leaf(const std::string& name, ggml_type type, std::vector<int64_t> shape, float scale = 1.0f,
                    ggml_type through = GGML_TYPE_F32) {
    ggml_tensor* tensor = ggml_new_tensor(leaves_, type, static_cast<int>(shape.size()), shape.data());
    ggml_set_name(tensor, name.c_str());
    fills_.push_back([=] {
      std::vector<float> values(ggml_nelements(tensor));
      Random random(seed_of(name));
      for (float& value : values) {
        value = scale * random.normal();
      }
      if (through != GGML_TYPE_F32) {
        values = decoded(through, encoded(through, values, tensor->ne[0]));
      }
      set(tensor, values);
    });
    return tensor;
  }
  ggml_tensor* param(const std::string& name, std::vector<int64_t> shape, float scale = 1.0f) {
    ggml_tensor* tensor = leaf(name, GGML_TYPE_F32, shape, scale);
    set_param(leaves_, tensor);
    params_.push_back(tensor);
    return tensor;
  }
  ggml_tensor* integers(const std::string& name, std::vector<int32_t> values) {
    ggml_tensor* tensor = ggml_new_tensor_1d(leaves_, GGML_TYPE_I32, static_cast<int64_t>(values.size()));
    ggml_set_name(tensor, name.c_str());
    fills_.push_back([=] { ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor)); });
    return tensor;
  }
  ggml_tensor* floats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    ggml_tensor* tensor = ggml_new_tensor(leaves_, GGML_TYPE_F32, static_cast<int>(shape.size()), shape.data());
    ggml_set_name(tensor, name.c_str());
    fills_.push_back([=] { set(tensor, values); });
    return tensor;
  }

  /// loss = sum(y * c) with a fixed random c of y's shape, so that the gradient of y is c itself.
  ggml_tensor* dot_loss(ggml_tensor* y, float scale = 1.0f) {
    ggml_tensor* c = leaf("c", GGML_TYPE_F32, {y->ne[0], y->ne[1], y->ne[2], y->ne[3]}, scale);
    return ggml_sum(nodes_, ggml_mul(nodes_, y, c));
  }

  /// Builds the reverse pass for the loss and reserves all memory. Gradients of the parameters are kept.
  void finish(ggml_tensor* loss) {
    build_backward_of(loss);
    allocate();
  }
  void build_backward_of(ggml_tensor* loss) {
    loss_ = loss;
    ggml_set_loss(loss);
    ggml_set_output(loss);
    ggml_build_forward_expand(graph_, loss);
    build_backward(nodes_, graph_);
    for (ggml_tensor* tensor : params_) {
      ggml_tensor* grad = ggml_graph_get_grad(graph_, tensor);
      if (!grad) {
        die(std::string("no gradient for ") + tensor->name);
      }
      ggml_set_output(grad);
    }
  }
  void allocate() {
    buffer_ = ggml_backend_alloc_ctx_tensors(leaves_, backend_);
    allocator_ = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_));
    if (!buffer_ || !ggml_gallocr_alloc_graph(allocator_, graph_)) {
      die("not enough memory for the graph");
    }
    for (const auto& fill : fills_) {
      fill();
    }
  }
  /// The first node that the backend cannot run, or null.
  const ggml_tensor* unsupported() const {
    for (int i = 0; i < ggml_graph_n_nodes(graph_); i++) {
      if (!ggml_backend_supports_op(backend_, ggml_graph_node(graph_, i))) {
        return ggml_graph_node(graph_, i);
      }
    }
    return nullptr;
  }
  void compute() {
    if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS) {
      die("the graph did not run");
    }
  }
  /// Runs forward and backward; returns the loss.
  float compute_gradients() {
    const float one = 1.0f;  // the loss's own gradient; the graph overwrites it
    ggml_backend_tensor_set(ggml_graph_get_grad_acc(graph_, loss_), &one, 0, sizeof(one));
    compute();
    return get(loss_)[0];
  }
  size_t scratch_bytes() const { return ggml_gallocr_get_buffer_size(allocator_, 0); }

  const std::vector<ggml_tensor*>& params() const { return params_; }
  std::vector<float> gradient(ggml_tensor* param) const { return get(ggml_graph_get_grad(graph_, param)); }

  static std::vector<float> get(const ggml_tensor* tensor) {
    std::vector<uint8_t> bytes(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    return decoded(tensor->type, bytes);
  }

 private:
  static std::vector<uint8_t> encoded(ggml_type type, const std::vector<float>& values, int64_t columns) {
    const int64_t rows = static_cast<int64_t>(values.size()) / columns;
    std::vector<uint8_t> bytes(rows * ggml_row_size(type, columns));
    if (type == GGML_TYPE_F32) {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    } else {
      ggml_quantize_chunk(type, values.data(), bytes.data(), 0, rows, columns, nullptr);
    }
    return bytes;
  }
  static std::vector<float> decoded(ggml_type type, const std::vector<uint8_t>& bytes) {
    std::vector<float> values(bytes.size() / ggml_type_size(type) * ggml_blck_size(type));
    if (type == GGML_TYPE_F32) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    } else {
      ggml_get_type_traits(type)->to_float(bytes.data(), values.data(), static_cast<int64_t>(values.size()));
    }
    return values;
  }
  static void set(ggml_tensor* tensor, const std::vector<float>& values) {
    ggml_backend_tensor_set(tensor, encoded(tensor->type, values, tensor->ne[0]).data(), 0, ggml_nbytes(tensor));
  }

  ggml_backend_t backend_;
  ggml_context* leaves_;
  ggml_context* nodes_;
  ggml_cgraph* graph_;
  ggml_tensor* loss_ = nullptr;
  ggml_backend_buffer_t buffer_ = nullptr;
  ggml_gallocr_t allocator_ = nullptr;
  std::vector<ggml_tensor*> params_;
  std::vector<std::function<void()>> fills_;
};

inline ggml_type type_named(const std::string& name) {
  for (ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_K}) {
    if (name == ggml_type_name(type)) {
      return type;
    }
  }
  die("unknown type " + name);
}
