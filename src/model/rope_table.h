// The table of the rope op (ops/rope.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace patina {

struct RopeSpec {
  int64_t width;  // C, even
  double base = 10000.0;
  double position_scale = 1.0;           // positions are multiplied by it (linear scaling: 1 / factor)
  std::span<const float> divisors = {};  // [C/2] each frequency is divided by (Llama 3 scaling); empty = ones
};

// Cosines and sines of positions [0, positions): [positions, C], C/2 cosines then C/2 sines a row.
std::vector<float> rope_table(const RopeSpec& spec, int64_t positions);

// 1 / sqrt(C), rounded once: what attention multiplies its scores by.
float score_scale(int64_t head_width);

}  // namespace patina
