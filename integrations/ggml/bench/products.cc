// Times every way to the gradient dx [K, T] of a product with a frozen weight W [K, N], given dy [N, T]; one JSON
// object a line.
//   products K N T REPEATS THREADS cpu|gpu TYPE...
// The ways of one type take turns, and each figure is a median, so that a drift of the machine meets all alike.
#include <algorithm>
#include <chrono>
#include <memory>

#include "../tests/support.h"

namespace {

struct Way {
  std::string name;
  std::unique_ptr<Graph> graph;
  std::vector<double> milliseconds;

  double run() {
    const auto start = std::chrono::steady_clock::now();
    graph->compute();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
};

constexpr double kLongMilliseconds =
    3000.0;  // a way that takes longer is timed once, without a warm-up: it would change nothing

using Expression = std::function<ggml_tensor*(Graph&, ggml_tensor* w, int64_t n, int64_t t)>;

ggml_tensor* dy(Graph& g, int64_t n, int64_t t) { return g.leaf("dy", GGML_TYPE_F32, {n, t}); }

/// dy as it arrives through a permuted view: [N, T] with its rows not contiguous.
ggml_tensor* strided_dy(Graph& g, int64_t n, int64_t t) {
  return ggml_transpose(g.nodes(), g.leaf("dy", GGML_TYPE_F32, {t, n}));
}

ggml_tensor* copied(Graph& g, ggml_tensor* w) { return ggml_cont(g.nodes(), ggml_transpose(g.nodes(), w)); }
ggml_tensor* copied_f32(Graph& g, ggml_tensor* w) {
  return ggml_cast(g.nodes(), ggml_transpose(g.nodes(), w), GGML_TYPE_F32);
}
ggml_tensor* decoded_and_copied(Graph& g, ggml_tensor* w) { return copied(g, ggml_cast(g.nodes(), w, GGML_TYPE_F32)); }

/// The transposed copy as the change makes it.
ggml_tensor* transposed(Graph& g, ggml_tensor* w) {
  return ggml_is_quantized(w->type) ? decoded_and_copied(g, w)
         : w->type == GGML_TYPE_F16 ? copied_f32(g, w)
                                    : copied(g, w);
}

std::vector<std::pair<std::string, Expression>> ways(ggml_type type) {
  std::vector<std::pair<std::string, Expression>> list = {
      {"forward",
       [](Graph& g, ggml_tensor* w, int64_t, int64_t t) {
         return ggml_mul_mat(g.nodes(), w, g.leaf("x", GGML_TYPE_F32, {w->ne[0], t}));
       }},
      {"outprod", [](Graph& g, ggml_tensor* w, int64_t n,
                     int64_t t) { return ggml_out_prod(g.nodes(), w, ggml_transpose(g.nodes(), dy(g, n, t))); }},
      {"product", [](Graph& g, ggml_tensor* w, int64_t n,
                     int64_t t) { return ggml_mul_mat(g.nodes(), transposed(g, w), dy(g, n, t)); }},
      {"copy", [](Graph& g, ggml_tensor* w, int64_t, int64_t) { return transposed(g, w); }},
      {"outprod_strided",
       [](Graph& g, ggml_tensor* w, int64_t n, int64_t t) {
         return ggml_out_prod(g.nodes(), w, ggml_transpose(g.nodes(), strided_dy(g, n, t)));
       }},
      {"product_strided",
       [](Graph& g, ggml_tensor* w, int64_t n, int64_t t) {
         return ggml_mul_mat(g.nodes(), transposed(g, w), ggml_cont(g.nodes(), strided_dy(g, n, t)));
       }},
  };
  if (type == GGML_TYPE_F16) {  // what the change does not do
    list.push_back({"product_in_type", [](Graph& g, ggml_tensor* w, int64_t n, int64_t t) {
                      return ggml_mul_mat(g.nodes(), copied(g, w), dy(g, n, t));
                    }});
  }
  if (type == GGML_TYPE_BF16) {
    list.push_back({"product_in_f32", [](Graph& g, ggml_tensor* w, int64_t n, int64_t t) {
                      return ggml_mul_mat(g.nodes(), copied_f32(g, w), dy(g, n, t));
                    }});
  }
  return list;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) {
    die("usage: products K N T REPEATS THREADS cpu|gpu TYPE...");
  }
  const int64_t k = std::atoll(argv[1]), n = std::atoll(argv[2]), t = std::atoll(argv[3]),
                repeats = std::atoll(argv[4]);
  ggml_backend_t backend = make_backend(std::string(argv[6]) == "gpu", std::atoi(argv[5]));
  for (int i = 7; i < argc; i++) {
    const ggml_type type = type_named(argv[i]);
    if (k % ggml_blck_size(type) != 0) {
      die(std::string(argv[i]) + " needs K in whole blocks of " + std::to_string(ggml_blck_size(type)));
    }
    std::vector<Way> all;
    for (const auto& [name, expression] : ways(type)) {
      Way way{name, std::make_unique<Graph>(backend, 64), {}};
      Graph& g = *way.graph;
      ggml_build_forward_expand(g.graph(), expression(g, g.leaf("w", type, {k, n}), n, t));
      g.allocate();
      if (!g.unsupported()) {
        const double warm_up = way.run();
        if (warm_up > kLongMilliseconds) {
          way.milliseconds.push_back(warm_up);
        }
      }
      all.push_back(std::move(way));
    }
    for (int64_t repeat = 0; repeat < repeats; repeat++) {
      for (Way& way : all) {
        if (!way.graph->unsupported() && (way.milliseconds.empty() || way.milliseconds.front() <= kLongMilliseconds)) {
          way.milliseconds.push_back(way.run());
        }
      }
    }
    for (const Way& way : all) {
      std::printf("{\"type\": \"%s\", \"K\": %lld, \"N\": %lld, \"T\": %lld, \"way\": \"%s\", ", ggml_type_name(type),
                  static_cast<long long>(k), static_cast<long long>(n), static_cast<long long>(t), way.name.c_str());
      if (way.milliseconds.empty()) {
        std::printf("\"ms\": null}\n");
      } else {
        std::printf("\"ms\": %.4f, \"min_ms\": %.4f, \"runs\": %zu, \"scratch_bytes\": %zu}\n",
                    median(way.milliseconds), *std::min_element(way.milliseconds.begin(), way.milliseconds.end()),
                    way.milliseconds.size(), way.graph->scratch_bytes());
      }
    }
    std::fflush(stdout);
  }
  ggml_backend_free(backend);
  return 0;
}
