// A whole LoRA step of a small llama with frozen weights of one type: forward, backward, AdamW. One JSON object.
//   step TYPE TOKENS STEPS THREADS cpu|gpu     GGML_BACKWARD_MM says which gradient
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "../tests/llama_like.h"

int main(int argc, char** argv) {
  if (argc != 6) {
    die("usage: step TYPE TOKENS STEPS THREADS cpu|gpu");
  }
  const int64_t tokens = std::atoll(argv[2]), steps = std::atoll(argv[3]);
  ggml_backend_t backend = make_backend(std::string(argv[5]) == "gpu", std::atoi(argv[4]));
  Graph g(backend, 16384);
  // Widths that every type allows; the batch is folded into the rows, as an unchanged ggml needs it for block-quantised
  // weights.
  const LlamaShape shape = {6, 512, 8, 2, 64, 1536, 8192, tokens, 1, 16, false, true};
  ggml_tensor* loss = LlamaLike(g, shape, type_named(argv[1])).loss();
  g.build_backward_of(loss);
  std::vector<float> settings = {1e-3f, 0.9f, 0.999f, 1e-8f,
                                 0.0f,  0.0f, 0.0f};  // rate, betas, eps, decay, and two bias corrections
  ggml_tensor* adamw = g.floats("adamw", {7}, settings);
  for (ggml_tensor* param : g.params()) {
    const std::vector<int64_t> extents = {param->ne[0], param->ne[1]};
    const std::vector<float> zeros(ggml_nelements(param), 0.0f);
    ggml_tensor* m = g.floats(std::string(param->name) + ".m", extents, zeros);
    ggml_tensor* v = g.floats(std::string(param->name) + ".v", extents, zeros);
    ggml_build_forward_expand(
        g.graph(), ggml_opt_step_adamw(g.nodes(), param, ggml_graph_get_grad(g.graph(), param), m, v, adamw));
  }
  g.allocate();
  std::printf("{\"type\": \"%s\", \"tokens\": %lld", argv[1], static_cast<long long>(tokens));
  if (const ggml_tensor* node = g.unsupported()) {
    std::printf(", \"unsupported\": \"%s of %s\"}\n", ggml_op_desc(node), ggml_type_name(node->src[0]->type));
    return 0;
  }
  std::vector<double> milliseconds;
  std::vector<float> losses;
  for (int64_t step = 0; step <= steps; step++) {  // the first warms up
    settings[5] = 1.0f / (1.0f - std::pow(settings[1], static_cast<float>(step + 1)));
    settings[6] = 1.0f / (1.0f - std::pow(settings[2], static_cast<float>(step + 1)));
    ggml_backend_tensor_set(adamw, settings.data(), 0, ggml_nbytes(adamw));
    const auto start = std::chrono::steady_clock::now();
    losses.push_back(g.compute_gradients());
    milliseconds.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  milliseconds.erase(milliseconds.begin());
  std::sort(milliseconds.begin(), milliseconds.end());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(", \"ms\": %.3f, \"first_loss\": %.6f, \"last_loss\": %.6f, \"scratch_bytes\": %zu, \"peak_bytes\": %lld",
              milliseconds[milliseconds.size() / 2], losses.front(), losses.back(), g.scratch_bytes(),
              static_cast<long long>(usage.ru_maxrss) * 1024);
  for (const char* name : {"converted", "kept"}) {
    std::printf(", \"%s\": %lld", name, static_cast<long long>(backward_mm_stat(name)));
  }
  std::printf("}\n");
  ggml_backend_free(backend);
  return std::isfinite(losses.back()) ? 0 : 1;
}
