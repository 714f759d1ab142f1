#include "measure/gemmbench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "quant/decode.h"
#include "support/wrapped_backend.h"

namespace patina::testing {
namespace {

constexpr const char* kNoLibrary = "libpatina-no-such-blas.so.0";

GemmBenchOptions small_options() {
  GemmBenchOptions options;
  options.shape = model_shape("96x64");
  options.tokens = {33};
  options.types = {DType::kF32, DType::kBF16, DType::kQ8_0};
  options.formulations = {Formulation::kFused, Formulation::kMm, Formulation::kOutprod};
  options.threads = 2;
  options.reps = 2;
  return options;
}

GemmBenchResult run(const GemmBenchOptions& options, const Backend& backend = cpu_backend()) {
  return run_gemmbench(options, backend, [](const GemmBenchResult&, size_t) {});
}

const Measurement& find(const GemmBenchResult& result, Measurement::Kind kind, std::string_view type,
                        std::string_view formulation) {
  for (const Measurement& m : result.measurements)
    if (m.kind == kind && m.type == type && m.formulation == formulation) return m;
  throw std::runtime_error(fmt::format("no {} {} {}", name(kind), type, formulation));
}

TEST(GemmBench, MeasuresEveryFormulationAndItsCopies) {
  const GemmBenchResult result = run(small_options());
  using Kind = Measurement::Kind;
  for (const char* type : {"F32", "BF16", "Q8_0"}) {
    for (const auto& [kind, formulation] :
         {std::pair{Kind::kForward, "fused"}, {Kind::kBackward, "fused"}, {Kind::kBackward, "outprod"}}) {
      const Measurement& m = find(result, kind, type, formulation);
      EXPECT_GT(m.ms, 0);
      EXPECT_EQ(m.operations, 2.0 * 33 * 96 * 64);
      ASSERT_TRUE(m.parity.has_value());
      EXPECT_TRUE(m.parity->ok()) << m.parity->rms_relative << " > " << m.parity->bound;
      EXPECT_GT(m.parity->rms_relative, 0x1p-26) << "F32 rounds";
      EXPECT_LT(m.parity->bound, 2e-5);
      EXPECT_GT(m.parity->cosine, 1 - 1e-10);
    }
  }
  EXPECT_GT(find(result, Kind::kBackward, "BF16", "mm").ms, 0);
  const Measurement& refused = find(result, Kind::kBackward, "Q8_0", "mm");
  EXPECT_FALSE(refused.measured());
  EXPECT_NE(refused.note.find("transposed"), std::string::npos);
  EXPECT_GT(find(result, Kind::kCopy, "BF16", "transposed").ms, 0);
  EXPECT_GT(find(result, Kind::kCopy, "Q8_0", "f32").ms, 0);
  EXPECT_GT(find(result, Kind::kCopy, "F32", "dense").ms, 0);
  EXPECT_THROW(find(result, Kind::kCopy, "F32", "f32"), std::runtime_error) << "F32 needs no cast";
  EXPECT_EQ(find(result, Kind::kBackward, "BF16", "fused").bytes, 2 * 96 * 64 + 4 * 33 * (96 + 64));
  EXPECT_EQ(result.sums.size(), 8u) << "mm of Q8_0 has none";
  EXPECT_TRUE(gemmbench_faults(result, 0).empty());
}

TEST(GemmBench, EveryTypeHasModerateRandomWeights) {
  GemmBenchOptions options = small_options();
  options.shape = model_shape("256x40");
  options.types.clear();
  for (const DTypeInfo& row : all_dtypes())
    if (is_decodable(row.dtype)) options.types.push_back(row.dtype);
  ASSERT_GE(options.types.size(), 11u);
  options.formulations = {Formulation::kFused};
  options.reps = 1;
  const GemmBenchResult result = run(options);
  EXPECT_EQ(result.sums.size(), options.types.size());
  EXPECT_TRUE(gemmbench_faults(result, 0).empty());
}

TEST(GemmBench, SumsCountSitesAndRecomputation) {
  GemmBenchOptions options = small_options();
  options.shape.products = {{"a", 64, 32, 2}, {"b", 32, 96, 1}};
  options.types = {DType::kBF16};
  const GemmBenchResult result = run(options);
  ASSERT_EQ(result.sums.size(), 3u);
  double forward = 0, backward = 0, outprod_step = 0;
  for (const Measurement& m : result.measurements) {
    if (m.kind == Measurement::Kind::kForward && m.formulation == "fused") forward += m.count * m.ms;
    if (m.kind == Measurement::Kind::kBackward && m.formulation == "mm") backward += m.count * m.ms;
    if (m.kind == Measurement::Kind::kBackward && m.formulation == "outprod") outprod_step += m.count * m.ms;
  }
  outprod_step += 2 * forward;
  const LayerSum& mm = result.sums[1];
  EXPECT_EQ(mm.formulation, Formulation::kMm);
  EXPECT_DOUBLE_EQ(mm.step_ms(), 2 * forward + backward);
  EXPECT_DOUBLE_EQ(mm.over_outprod, outprod_step / (2 * forward + backward));
}

TEST(GemmBench, ATypeThatCannotStoreARowIsSaidAndHasNoSum) {
  GemmBenchOptions options = small_options();
  options.shape.products = {{"a", 96, 32, 1}, {"b", 256, 32, 1}};
  options.types = {DType::kF32, DType::kQ4_K};
  GemmBenchResult result = run(options);
  EXPECT_FALSE(find(result, Measurement::Kind::kForward, "Q4_K", "fused").measured());
  for (const LayerSum& sum : result.sums) EXPECT_EQ(sum.type, "F32");
  EXPECT_TRUE(gemmbench_faults(result, 0).empty());
  result.sums.clear();
  const std::vector<std::string> faults = gemmbench_faults(result, 0.5);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].find("T=33 Q4_K"), std::string::npos) << faults[0];
  options.shape.products.pop_back();
  EXPECT_THROW(run(options), Error);
}

TEST(GemmBench, AWrongResultIsAFault) {
  // The last row of every product, off by what rounding its operands to BF16 would do.
  const WrappedBackend backend(cpu_backend(), [](const KernelEntry& inner, const Op& op, std::span<const Tensor> in,
                                                 std::span<const Tensor> out, KernelContext& context) {
    inner.run(op, in, out, context);
    if (op.name() != "frozen_linear") return;
    const Tensor& y = out[0];
    float* const row = y.f32() + (y.shape[0] - 1) * y.shape[1];
    for (int64_t i = 0; i < y.shape[1]; ++i) row[i] *= 1 + 0x1p-9f;
  });
  for (const bool step : {false, true}) {
    GemmBenchOptions options = small_options();
    options.types = {DType::kBF16};
    if (step) options.shape = {"tiny", 64, 2, 1, 32, 96, false, {{"q", 64, 64, 1}}};
    options.step = step;
    EXPECT_TRUE(gemmbench_faults(run(options), 0).empty()) << step;
    const std::vector<std::string> faults = gemmbench_faults(run(options, backend), 0);
    // Outer products are computed by another kernel; a layer has forward products too.
    ASSERT_EQ(faults.size(), 3u) << step;
    EXPECT_NE(faults[1].find("T=33 BF16"), std::string::npos) << faults[1];
    EXPECT_NE(faults[1].find("rms relative"), std::string::npos) << faults[1];
  }
}

TEST(GemmBench, WithoutOpenBlasThereAreNoRatios) {
  GemmBenchOptions options = small_options();
  options.yardstick_library = kNoLibrary;
  const GemmBenchResult result = run(options);
  EXPECT_EQ(result.machine.yardstick, "");
  for (const Measurement& m : result.measurements) {
    EXPECT_NE(m.formulation, kSgemm);
    EXPECT_EQ(m.ratio(), 0);
    EXPECT_FALSE(m.invalid);
  }
  options.min_ratio = 0.5;
  try {
    run(options);
    FAIL() << "a ratio without a yardstick";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kUsage);
    EXPECT_NE(std::string(error.what()).find("libopenblas0-pthread"), std::string::npos) << error.what();
  }
}

TEST(GemmBench, ARatioThatIsTooLowOrInvalidIsAFault) {
  GemmBenchResult result;
  result.sums.push_back({.t = 128,
                         .type = "BF16",
                         .forward_ms = 10,
                         .backward_ms = 20,
                         .yardstick_forward_ms = 9,
                         .yardstick_backward_ms = 16});
  EXPECT_TRUE(gemmbench_faults(result, 0.8).empty());
  const std::vector<std::string> faults = gemmbench_faults(result, 0.85);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].find("T=128 BF16 backward"), std::string::npos) << faults[0];
  EXPECT_EQ(gemmbench_faults(result, 0.95).size(), 2u);
  result.sums[0].invalid = true;
  EXPECT_EQ(gemmbench_faults(result, 0.8).size(), 2u);
  result.sums[0].formulation = Formulation::kMm;
  EXPECT_TRUE(gemmbench_faults(result, 0.95).empty()) << "only fused is held to it";
}

TEST(GemmBench, AWholeLayerHasOneLineAFormulation) {
  GemmBenchOptions options = small_options();
  options.shape = {"tiny", 64, 2, 1, 32, 96, false, {{"q", 64, 64, 1}}};
  options.step = true;
  const GemmBenchResult result = run(options);
  const Measurement& fused = find(result, Measurement::Kind::kLayer, "Q8_0", "fused");
  // q, k, v, o, gate, up, down; forward and backward; two operations.
  EXPECT_EQ(fused.operations, 2.0 * 2 * 33 * (64 * 64 * 2 + 64 * 32 * 2 + 64 * 96 * 3));
  EXPECT_FALSE(find(result, Measurement::Kind::kLayer, "Q8_0", "mm").measured());
  EXPECT_TRUE(result.sums.empty()) << "a layer is its own sum";
  EXPECT_TRUE(gemmbench_faults(result, 0).empty());
  options.shape.cross_attention = true;  // its q and o are of the sizes of self-attention's
  const GemmBenchResult crossed = run(options);
  EXPECT_EQ(find(crossed, Measurement::Kind::kLayer, "Q8_0", "fused").operations,
            2.0 * 2 * 33 * (64 * 64 * 4 + 64 * 32 * 2 + 64 * 96 * 3));
  EXPECT_TRUE(gemmbench_faults(crossed, 0).empty());
  options.shape = model_shape("64x64");
  EXPECT_THROW(run(options), Error);
}

TEST(GemmBench, EmulatesReducedPrecision) {
  GemmBenchOptions options = small_options();
  options.shape = model_shape("320x512");
  options.tokens = {64};
  options.types = {DType::kBF16};
  options.formulations = {Formulation::kFused};
  options.reps = 1;
  options.emulate = true;
  const GemmBenchResult result = run(options);
  ASSERT_EQ(result.emulated.size(), 4u);
  // The known digits for K x N = 2560 x 4096: cosine 0.9999958, 0.9999972, 0.9999986. Roundings are independent, so
  // that cosine does not depend on the size, but for its spread.
  const double cosines[] = {0.9999958, 0.9999972, 0.9999986};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(result.emulated[i].cosine, cosines[i], 1e-7) << i;
  EXPECT_GT(result.emulated[0].max_relative, result.emulated[2].max_relative);
  EXPECT_GT(result.emulated[3].cosine, 1 - 1e-10);
}

TEST(ModelShape, KnowsModelsAndSingleProducts) {
  const ModelShape qwen = model_shape("qwen3-4b");
  ASSERT_EQ(qwen.products.size(), 5u);
  const int64_t sizes[][3] = {{2560, 4096, 1}, {2560, 1024, 2}, {4096, 2560, 1}, {2560, 9728, 2}, {9728, 2560, 1}};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(qwen.products[i].k, sizes[i][0]);
    EXPECT_EQ(qwen.products[i].n, sizes[i][1]);
    EXPECT_EQ(qwen.products[i].count, sizes[i][2]);
  }
  EXPECT_EQ(model_shape("ace-step-xl").products[0].count, 2) << "cross-attention's q is of the same size";
  EXPECT_EQ(model_shape("7x5").products[0].n, 5);
  for (const char* wrong : {"", "qwen", "0x5", "5x", "x5", "5x5x5", "-5x5", "5x999999999"})
    EXPECT_THROW(model_shape(wrong), Error) << wrong;
}

}  // namespace
}  // namespace patina::testing
