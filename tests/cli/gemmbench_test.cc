#include <gtest/gtest.h>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

TEST(GemmBench, WritesATableAndJson) {
  const Workplace place;
  const Outcome run = place.run({"gemmbench", "--model-shape", "64x96", "--seq", "40,256", "--types", "BF16,Q8_0",
                                 "--quick", "--json", place.path("out.json")});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* text : {"GFLOP/s of independent multiply-adds", "K x N = 64 x 96, T = 256", "cosine", "transposed",
                           "- Q8_0 mm: a block-quantised weight", "two forwards"})
    EXPECT_NE(run.out.find(text), std::string::npos) << text << "\n" << run.out;
  const json result = json::parse(read_file(place.path("out.json")));
  EXPECT_GT(result.at("machine").at("peakGflops"), 0);
  for (const char* key : {"cpu", "isa", "threads", "openblas", "otherCores", "otherCoresBefore", "busy", "patina"})
    EXPECT_TRUE(result.at("machine").contains(key)) << key;
  size_t of_256 = 0;
  for (const json& row : result.at("rows")) {
    of_256 += row.at("t") == 256;
    EXPECT_EQ(row.size(), row.contains("note") ? 21u : 20u);
    EXPECT_EQ(row.at("shape"), "64x96");
    EXPECT_EQ(row.at("k"), 64);
    EXPECT_EQ(row.at("n"), 96);
    if (row.contains("note")) {
      EXPECT_TRUE(row.at("ms").is_null());
      continue;
    }
    EXPECT_GT(row.at("ms"), 0);
    EXPECT_GT(row.at("bytes"), 0);
    const bool copy = row.at("direction") == "copy";
    EXPECT_EQ(row.at("gflops").is_null(), copy);
    EXPECT_EQ(row.at("peakShare").is_null(), copy);
    EXPECT_EQ(row.at("rmsRel").is_null(), copy);
    EXPECT_EQ(row.at("ratio").is_null(), copy || result.at("machine").at("openblas").is_null());
  }
  EXPECT_EQ(of_256, result.at("rows").size() / 2) << "--seq 256 is 256 tokens, not a default";
  ASSERT_EQ(result.at("layerSums").size(), 10u) << "2 T x (BF16 three times, Q8_0 twice)";
  const json& sum = result.at("layerSums")[0];
  EXPECT_DOUBLE_EQ(sum.at("stepMs"), 2 * sum.at("forwardMs").get<double>() + sum.at("backwardMs").get<double>());
  EXPECT_GT(sum.at("overOutprod"), 0);
}

TEST(GemmBench, OnlyTheFormulationsThatWereAskedFor) {
  const Workplace place;
  const Outcome run = place.run({"gemmbench", "--model-shape", "64x96", "--quick", "--types", "F32", "--formulations",
                                 "fused", "--json", place.path("out.json")});
  ASSERT_EQ(run.status, 0) << run.err;
  const json result = json::parse(read_file(place.path("out.json")));
  for (const json& row : result.at("rows"))
    EXPECT_TRUE(row.at("formulation") == "fused" || row.at("formulation") == "sgemm") << row;
}

TEST(GemmBench, ARatioThatNobodyReachesFails) {
  const Workplace place;
  const Outcome run = place.run({"gemmbench", "--model-shape", "64x96", "--quick", "--types", "F32", "--min-ratio",
                                 "1000", "--formulations", "fused"});
  if (run.status == 2) {
    EXPECT_NE(run.err.find("libopenblas0-pthread"), std::string::npos) << run.err;  // a machine without OpenBLAS
    return;
  }
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("sum of a layer T=256 F32 backward fused: "), std::string::npos) << run.err;
}

TEST(GemmBench, WrongFlagsAreOneLineEach) {
  const Workplace place;
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--model-shape", "llama-9"}, "qwen3-4b"},
      {{"--model-shape", "64x"}, "--model-shape"},
      {{"--seq", "0"}, "--seq"},
      {{"--seq", ""}, "--seq"},
      {{"--seq", "12,,13"}, "--seq"},
      {{"--seq", "12,12"}, "twice"},
      {{"--seq", "256k"}, "256k"},
      {{"--types", "Q9_0"}, "Q9_0"},
      {{"--types", "I32"}, "I32"},
      {{"--types", "bf16"}, "BF16"},
      {{"--formulations", "fast"}, "outprod"},
      {{"--threads", "0"}, "--threads"},
      {{"--reps", "0"}, "--reps"},
      {{"--min-ratio", "0"}, "--min-ratio"},
      {{"--min-ratio", "nan"}, "--min-ratio"},
      {{"--min-ratio", "1", "--formulations", "mm"}, "fused"},
      {{"--emulate", "abacus"}, "--emulate"},
      {{"--step", "--model-shape", "64x96"}, "--step"},
      {{"--model-shape", "96x64", "--types", "Q4_K"}, "blocks of 256"},
      {{"--step", "--model-shape", "smollm2-135m", "--types", "Q4_K"}, "blocks of 256"},
      {{"stray"}, "stray"},
  };
  for (const auto& [flags, text] : cases) {
    std::vector<std::string> arguments = {"gemmbench", "--quick"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 2) << flags[0] << " " << flags.back() << run.out;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
  const Outcome unwritable = place.run({"gemmbench", "--quick", "--json", place.path("none/out.json")});
  EXPECT_EQ(unwritable.status, 1) << "found before anything is measured";
  EXPECT_EQ(unwritable.out, "");
}

}  // namespace
}  // namespace patina::testing
