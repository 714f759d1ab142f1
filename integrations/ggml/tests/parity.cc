// What a GPU's arithmetic makes of the two formulations, emulated: Gaussian W [N, K] and dy [T, N], dx = dy . W. The
// outer product runs in TF32 (both inputs rounded to 11 significant bits, sums in F32); the product runs on a BF16
// weight. Prints cosine and max|err| / max|ref|.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "support.h"

namespace {

constexpr int64_t kIn = 2560, kOut = 4096, kTokens = 512;  // K, N, T

/// Rounds to `bits` significant bits, to nearest, ties to even.
float rounded(float value, int bits) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  const uint32_t unit = 1u << (24 - bits);
  word += unit / 2 - 1 + ((word / unit) & 1u);
  word &= ~(unit - 1);
  std::memcpy(&value, &word, sizeof(word));
  return value;
}
constexpr int kTf32 = 11, kBf16 = 8, kF32 = 24;

std::vector<float> all_rounded(const std::vector<float>& values, int bits) {
  std::vector<float> result = values;
  if (bits != kF32) {
    for (float& value : result) {
      value = rounded(value, bits);
    }
  }
  return result;
}

/// dx [T, K], sums in F32 in the order of N.
std::vector<float> product(const std::vector<float>& w, const std::vector<float>& dy) {
  constexpr int64_t kColumns = 16, kRows = 4;
  std::vector<float> dx(kTokens * kIn), panel(kOut * kColumns);
  for (int64_t k = 0; k < kIn; k += kColumns) {
    for (int64_t n = 0; n < kOut; n++) {
      std::copy_n(&w[n * kIn + k], kColumns, &panel[n * kColumns]);
    }
    for (int64_t t = 0; t < kTokens; t += kRows) {
      float sums[kRows][kColumns] = {};
      for (int64_t n = 0; n < kOut; n++) {
        for (int64_t r = 0; r < kRows; r++) {
          const float factor = dy[(t + r) * kOut + n];
          for (int64_t c = 0; c < kColumns; c++) {
            sums[r][c] += factor * panel[n * kColumns + c];
          }
        }
      }
      for (int64_t r = 0; r < kRows; r++) {
        std::copy_n(sums[r], kColumns, &dx[(t + r) * kIn + k]);
      }
    }
  }
  return dx;
}

void print(const char* name, const std::vector<float>& found, const std::vector<float>& reference) {
  double dot = 0.0, ff = 0.0, rr = 0.0, error = 0.0, size = 0.0;
  for (size_t i = 0; i < found.size(); i++) {
    const double f = found[i], r = reference[i];
    dot += f * r;
    ff += f * f;
    rr += r * r;
    error = std::max(error, std::fabs(f - r));
    size = std::max(size, std::fabs(r));
  }
  std::printf("%s %.7f %.2e\n", name, dot / std::sqrt(ff * rr), error / size);
}

}  // namespace

int main() {
  Random random(3);
  std::vector<float> w(kOut * kIn), dy(kTokens * kOut);
  for (float& value : w) {
    value = random.normal();
  }
  for (float& value : dy) {
    value = random.normal();
  }
  const std::vector<float> w_bf16 = all_rounded(w, kBf16);
  const std::vector<float> reference = product(all_rounded(w, kTf32), all_rounded(dy, kTf32));
  const std::vector<float> bf16 = product(w_bf16, all_rounded(dy, kBf16)), wide = product(w_bf16, dy);
  print("bf16_result", all_rounded(bf16, kBf16), reference);
  print("f32_result", bf16, reference);
  print("f32_gradient_and_result", wide, reference);
  print("same_weight", wide, product(w_bf16, all_rounded(dy, kTf32)));  // a weight that was BF16 to begin with
  return 0;
}
