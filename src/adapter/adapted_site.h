// An adapter in numbers, site by site, in Hugging Face row order: what files hold, what an adapter starts from and what
// it is exported as. No graph and no file format is known here.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace patina {

// LoRA (arXiv 2106.09685): delta W [out,in] = scale * b a. With a magnitude, DoRA (arXiv 2402.09353): the adapted
// weight is row by row magnitude * (W + scale * b a) / |W + scale * b a|.
struct LoraFactors {
  int64_t rank;
  float alpha;
  std::vector<float> a;          // [rank, in]
  std::vector<float> b;          // [out, rank]
  std::vector<float> magnitude;  // [out]; empty: plain LoRA
  // rsLoRA is no kind of its own: its alpha is stored as alpha * sqrt(rank).
  float scale() const { return alpha / static_cast<float>(rank); }
};

// One factor of a Kronecker product: whole, or as a product of two.
struct KroneckerFactor {
  int64_t rows, columns;
  std::vector<float> whole;  // [rows, columns]; empty where the factor is low-rank
  std::vector<float> a, b;   // [rows, dim] and [dim, columns]; empty where it is whole
  bool is_whole() const { return !whole.empty(); }
};

// LoKr by the rule of LyCORIS: delta W [out,in] = scale * kron(w1, w2), out = w1.rows * w2.rows, in = w1.columns *
// w2.columns.
struct LokrFactors {
  int64_t dim;
  float alpha;
  KroneckerFactor w1, w2;
  float scale() const { return w1.is_whole() && w2.is_whole() ? 1.0f : alpha / static_cast<float>(dim); }
};

using Factors = std::variant<LoraFactors, LokrFactors>;

struct AdaptedSite {
  int layer;         // -1 for lm_head
  std::string site;  // canonical name: "q"
  int64_t in, out;   // of W [out,in]
  Factors factors;
};

}  // namespace patina
