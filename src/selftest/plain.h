// Plain loops in double precision: what the oracles of losses are written with. They share no code with the ops or the
// adapters.
#pragma once

#include <cstdint>
#include <vector>

#include "adapter/adapted_site.h"
#include "base/function_ref.h"
#include "tensor/tensor.h"

namespace patina {

// W + what an adapted site adds to it, [out,in]: scale B A, or scale kron(w1, w2), built; with a magnitude, its rows at
// those lengths.
void add_adapter(std::vector<double>& weight, const AdaptedSite& site);
// The numbers of a stored matrix in its row map's order.
std::vector<double> decoded_matrix(const Tensor& weight);

// x [T,in] W^T
std::vector<double> plain_product(const std::vector<double>& x, const std::vector<double>& weight, int64_t in);
// Rows of x, as wide as the scale.
std::vector<double> plain_norm(const std::vector<double>& x, const std::vector<double>& scale, double epsilon);
// Rope in Hugging Face's order: column i of a head turns with column i + C/2. Row t is at position t.
void plain_rotate(std::vector<double>& x, int64_t heads, int64_t width, double base);
struct PlainHeads {
  int64_t heads, kv_heads, width;
};
// q [T, heads C], k and v [S, kv_heads C]: row t sees the columns s that are visible to it.
std::vector<double> plain_attention(const std::vector<double>& q, const std::vector<double>& k,
                                    const std::vector<double>& v, const PlainHeads& shape,
                                    FunctionRef<bool(int64_t row, int64_t column)> visible);
// gate = SiLU(gate) * up
void plain_swiglu(std::vector<double>& gate, const std::vector<double>& up);

}  // namespace patina
