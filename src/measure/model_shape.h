// The frozen products of known models, by size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace patina {

// Sites of a layer whose weights W [N,K] have one size: measured once, counted `count` times.
struct ProductShape {
  std::string sites;  // "gate, up"
  int64_t k, n;
  int count;
};

// A layer's sizes, letters as in docs/vocabulary.md. d == 0: a single product, not a model.
struct ModelShape {
  std::string name;
  int64_t d = 0, h = 0, g = 0, c = 0, f = 0;
  bool cross_attention = false;
  std::vector<ProductShape> products;
};

// A known name, or "KxN" for a single product. Error(kUsage) otherwise.
ModelShape model_shape(std::string_view name);
std::string model_shape_names();  // "qwen3-4b, qwen3-0.6b, ..."

}  // namespace patina
