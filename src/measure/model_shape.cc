#include "measure/model_shape.h"

#include <charconv>

#include "base/error.h"

namespace patina {

namespace {

struct Row {
  std::string_view name;
  int64_t d, h, g, c, f;
  bool cross_attention;
};
constexpr Row kModels[] = {
    {"qwen3-4b", 2560, 32, 8, 128, 9728, false},   {"qwen3-0.6b", 1024, 16, 8, 128, 3072, false},
    {"smollm2-135m", 576, 9, 3, 64, 1536, false},  {"llama3.2-1b", 2048, 32, 8, 64, 8192, false},
    {"ace-step-2b", 2048, 16, 8, 128, 6144, true}, {"ace-step-xl", 2560, 32, 8, 128, 9728, true},
};

constexpr int64_t kMostSize = 1 << 17;

// Cross-attention's q and o are of the sizes of self-attention's. Its k and v are left out: they see the conditioning
// tokens, whose number has nothing to do with T.
std::vector<ProductShape> products_of(const Row& m) {
  const int attentions = m.cross_attention ? 2 : 1;
  return {{m.cross_attention ? "self.q, cross.q" : "q", m.d, m.h * m.c, attentions},
          {m.cross_attention ? "self.k, self.v" : "k, v", m.d, m.g * m.c, 2},
          {m.cross_attention ? "self.o, cross.o" : "o", m.h * m.c, m.d, attentions},
          {"gate, up", m.d, m.f, 2},
          {"down", m.f, m.d, 1}};
}

bool read_size(std::string_view text, int64_t& size) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  return error == std::errc() && end == text.data() + text.size() && size >= 1 && size <= kMostSize;
}

}  // namespace

ModelShape model_shape(std::string_view name) {
  for (const Row& m : kModels)
    if (m.name == name) return {std::string(name), m.d, m.h, m.g, m.c, m.f, m.cross_attention, products_of(m)};
  const size_t x = name.find('x');
  int64_t k, n;
  if (x == std::string_view::npos || !read_size(name.substr(0, x), k) || !read_size(name.substr(x + 1), n))
    fail(Error::Kind::kUsage, "--model-shape: expected {}, or KxN such as 2560x4096 (each at most {}), found \"{}\"",
         model_shape_names(), kMostSize, name);
  ModelShape shape;
  shape.name = name;
  shape.products = {{"product", k, n, 1}};
  return shape;
}

std::string model_shape_names() {
  std::string names;
  for (const Row& m : kModels) names += (names.empty() ? "" : ", ") + std::string(m.name);
  return names;
}

}  // namespace patina
