// Runs one named graph, forward and backward. Standard output: every node of the graph, then the counters of the
// change. FILE gets the gradients of all parameters, as F32 in the order of the "gradient" lines.
//   cases CASE FILE
#include <unistd.h>
#include <map>

#include "llama_like.h"

namespace {

using Build = std::function<ggml_tensor*(Graph&)>;  // returns the loss

Build product(ggml_type type) {
  return [=](Graph& g) {
    return g.dot_loss(ggml_mul_mat(g.nodes(), g.leaf("w", type, {256, 48}), g.param("x", {256, 5})));
  };
}

/// The gradient of the product is a view with its axes in the order given, of a contiguous tensor.
Build permuted(ggml_type type, int axis0, int axis1, int axis2) {
  return [=](Graph& g) {
    ggml_tensor* y = ggml_mul_mat(g.nodes(), g.leaf("w", type, {256, 48}), g.param("x", {256, 5, 3}));
    return g.dot_loss(ggml_cont(g.nodes(), ggml_permute(g.nodes(), y, axis0, axis1, axis2, 3)));
  };
}

/// Grouped heads (8 on 2), two sequences, LoRA and LoKr; widths that K-quants allow.
constexpr LlamaShape kLlama = {2, 256, 8, 2, 32, 512, 96, 9, 2, 4, true, false};
constexpr LlamaShape kFolded = {2, 256, 8, 2, 32, 512, 96, 9, 2, 4, true, true};

/// A reshape between the product and the view: its own gradient is made contiguous, so the product's is.
ggml_tensor* reshaped(Graph& g) {
  ggml_context* ctx = g.nodes();
  ggml_tensor* y = ggml_mul_mat(ctx, g.leaf("w", GGML_TYPE_BF16, {256, 48}), g.param("x", {256, 5, 3}));
  return g.dot_loss(ggml_cont(ctx, ggml_permute(ctx, ggml_reshape_3d(ctx, y, 48, 5, 3), 1, 0, 2, 3)));
}

Build llama(const LlamaShape& shape, ggml_type type, bool decoded) {
  return [=](Graph& g) { return LlamaLike(g, shape, type, decoded).loss(); };
}

ggml_tensor* accumulate(Graph& g) {
  ggml_context* ctx = g.nodes();
  ggml_tensor* x = g.param("x", {64, 7});
  ggml_tensor* y = ggml_add(ctx, ggml_mul_mat(ctx, g.leaf("w1", GGML_TYPE_F32, {64, 32}), x),
                            ggml_mul_mat(ctx, g.leaf("w2", GGML_TYPE_F32, {64, 32}), x));
  return g.dot_loss(ggml_add(ctx, y, ggml_mul_mat(ctx, g.leaf("w3", GGML_TYPE_F32, {64, 32}), x)));
}

ggml_tensor* trainable(Graph& g) {
  ggml_tensor* y = ggml_mul_mat(g.nodes(), g.param("w1", {64, 32}), g.param("x", {64, 7}));
  return g.dot_loss(ggml_mul_mat(g.nodes(), g.leaf("w2", GGML_TYPE_F32, {32, 16}), y));
}

/// Only the first input of the product is trained: no gradient of a second input is built.
ggml_tensor* weight_only(Graph& g) {
  return g.dot_loss(ggml_mul_mat(g.nodes(), g.param("w", {64, 32}), g.leaf("x", GGML_TYPE_F32, {64, 7})));
}

ggml_tensor* heads(Graph& g) {
  return g.dot_loss(ggml_mul_mat(g.nodes(), g.param("k", {64, 9, 2, 1}), g.param("q", {64, 7, 8, 1})));
}

std::map<std::string, Build> cases() {
  std::map<std::string, Build> table = {
      {"transposed", permuted(GGML_TYPE_F32, 1, 0, 2)},
      {"transposed-bf16", permuted(GGML_TYPE_BF16, 1, 0, 2)},
      {"reshaped-bf16", reshaped},
      {"rows", permuted(GGML_TYPE_F32, 0, 2, 1)},
      {"accumulate", accumulate},
      {"trainable", trainable},
      {"weight_only", weight_only},
      {"heads", heads},
  };
  for (const ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_K}) {
    const std::string name = ggml_type_name(type);
    table["product-" + name] = product(type);
    table["llama-" + name] = llama(kLlama, type, false);
    table["llama-folded-" + name] = llama(kFolded, type, false);
    table["llama-decoded-" + name] = llama(kLlama, type, true);
  }
  return table;
}

void print_tensor(const ggml_tensor* t, const std::map<const ggml_tensor*, int>& numbers) {
  std::printf("%s %s '%s' [%lld %lld %lld %lld] strides [%zu %zu %zu %zu] offset %zu flags %d params", ggml_op_desc(t),
              ggml_type_name(t->type), t->name, static_cast<long long>(t->ne[0]), static_cast<long long>(t->ne[1]),
              static_cast<long long>(t->ne[2]), static_cast<long long>(t->ne[3]), t->nb[0], t->nb[1], t->nb[2],
              t->nb[3], t->view_offs, static_cast<int>(t->flags));
  for (const int32_t param : t->op_params) {
    std::printf(" %d", param);
  }
  std::printf(" inputs");
  for (const ggml_tensor* source : t->src) {
    if (!source) {
      continue;
    }
    const auto found = numbers.find(source);
    if (found != numbers.end()) {
      std::printf(" %d", found->second);
    } else {
      std::printf(" '%s' %s [%lld %lld %lld %lld]", source->name, ggml_type_name(source->type),
                  static_cast<long long>(source->ne[0]), static_cast<long long>(source->ne[1]),
                  static_cast<long long>(source->ne[2]), static_cast<long long>(source->ne[3]));
    }
  }
  std::printf("\n");
}

void print_graph(ggml_cgraph* graph) {
  std::map<const ggml_tensor*, int> numbers;
  for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
    numbers[ggml_graph_node(graph, i)] = i;
    std::printf("node %d ", i);
    print_tensor(ggml_graph_node(graph, i), numbers);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "list") {
    for (const auto& [name, build] : cases()) {
      std::printf("%s\n", name.c_str());
    }
    return 0;
  }
  const bool gate_changes = argc == 4 && std::string(argv[3]) == "change-gate";
  if ((argc != 3 && !gate_changes) || !cases().count(argv[1])) {
    die("usage: cases list | CASE FILE [change-gate]");
  }
  alarm(300);
  ggml_backend_t backend = make_backend(false, 2);
  for (const char* next : gate_changes ? std::vector<const char*>{"1", "0", ""} : std::vector<const char*>{nullptr}) {
    Graph g(backend);
    g.finish(cases().at(argv[1])(g));
    if (const ggml_tensor* node = g.unsupported()) {
      std::printf("unsupported %s of %s\n", ggml_op_desc(node), ggml_type_name(node->src[0]->type));
    }
    print_graph(g.graph());
    std::fflush(stdout);  // where the backend aborts, the graph has been said
    g.compute_gradients();
    std::FILE* file = std::fopen(argv[2], "wb");
    if (!file) {
      die(std::string("cannot write ") + argv[2]);
    }
    for (ggml_tensor* param : g.params()) {
      const std::vector<float> gradient = g.gradient(param);
      std::printf("gradient %s %zu\n", param->name, gradient.size());
      std::fwrite(gradient.data(), sizeof(float), gradient.size(), file);
    }
    std::fclose(file);
    print_stats(stdout);
    if (next) {
      setenv("GGML_BACKWARD_MM", next, 1);
    }
  }
  ggml_backend_free(backend);
  return 0;
}
