// DoRA (Liu et al., arXiv 2402.09353): LoRA, and the rows of the adapted weight V = W + s B A have trained magnitudes
// m: y = m / |V| * (V x). The gradient takes |V| as a constant, as the paper defines it (its section 4.3).
#include <cmath>

#include "adapter/lora.h"
#include "ops/copy.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"
#include "ops/row_magnitude.h"
#include "ops/view.h"
#include "quant/decode.h"

namespace patina {
namespace {

// |W|^2 of each row, in Hugging Face order.
std::vector<float> row_squares(const Tensor& weight) {
  const DecodeRow decode = decode_row(weight.dtype);
  std::vector<float> squares(static_cast<size_t>(weight.shape[0])), row(static_cast<size_t>(weight.shape[1]));
  for (int64_t r = 0; r < weight.shape[0]; ++r) {
    decode(weight.row(r), 0, weight.shape[1], row.data());
    double sum = 0.0;
    for (const float value : row) sum += static_cast<double>(value) * static_cast<double>(value);
    squares[static_cast<size_t>(r)] = static_cast<float>(sum);
  }
  return squares;
}

class DoraBranch final : public LoraBranch {
 public:
  DoraBranch(const Site& site, ParameterStore& store, int64_t rank, float alpha)
      : LoraBranch(site, store, rank, alpha),
        magnitude_(add_slice("magnitude", {site.out})),
        squares_(row_squares(site.weight)),
        norms_(squares_.size()) {
    for (size_t n = 0; n < norms_.size(); ++n) norms_[n] = std::max(std::sqrt(squares_[n]), kLeastRowNorm);
  }

  // Magnitudes are the norms of W's rows: untrained, m / |V| is 1 to the last bit.
  void initialise(uint64_t seed) override {
    LoraBranch::initialise(seed);
    load_slice(magnitude_, norms_);
  }
  void load(const Factors& factors) override {
    LoraBranch::load(factors);
    load_slice(magnitude_, std::get<LoraFactors>(factors).magnitude);
  }
  Factors factors() const override {
    Factors factors = LoraBranch::factors();
    std::get<LoraFactors>(factors).magnitude = copy(magnitude_);
    return factors;
  }

  ValueId linear(Graph& graph, const FrozenProduct& product) override {
    FrozenProduct alone = product;
    alone.acc = kNoValue;
    const ValueId z = LoraBranch::linear(graph, alone);
    return row_magnitude(graph, z, trainable(graph, magnitude_), norms(graph), product.acc,
                         product.label + ".magnitude");
  }

  // Per step, not per micro-batch: the parameters stay as they are in between.
  void add_prelude(Graph& graph) override {
    const std::string name = label();
    const ValueId a = trainable(graph, a_), b = trainable(graph, b_);
    const ValueId weight = graph.frozen(name, site_.weight);
    const ValueId wa = frozen_linear(graph, a, weight, kNoValue, name + ".wa");
    const ValueId aa = matmul(graph, a, a, kNoValue, 1.0f, true, name + ".aa");
    const ValueId ba = matmul(graph, aa, b, kNoValue, 1.0f, true, name + ".ba");
    const ValueId columns_of_b = dense_copy(graph, transpose(graph, b, name), name);
    const ValueId squares = graph.state(name + ".squares", DType::kF32, {site_.out}, squares_.data());
    graph.mark_output(adapted_row_norms(graph, norms(graph), squares, wa, ba, columns_of_b, scale(), name + ".norms"));
  }
  int64_t constant_bytes() const override {
    return static_cast<int64_t>((squares_.size() + norms_.size()) * sizeof(float));
  }

 private:
  ValueId norms(Graph& graph) { return graph.state(label() + ".norms", DType::kF32, {site_.out}, norms_.data()); }

  const size_t magnitude_;              // slice
  std::vector<float> squares_, norms_;  // [out] |W|^2; |V|
};

}  // namespace

std::unique_ptr<Branch> make_dora(const Site& site, ParameterStore& store, int64_t rank, float alpha) {
  PATINA_CHECK(site.weight.present(), "{} has no weight", site_label(site.layer, site.name));
  return std::make_unique<DoraBranch>(site, store, rank, alpha);
}

}  // namespace patina
