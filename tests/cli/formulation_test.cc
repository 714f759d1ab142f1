// --bwd and the environment variable that asks programs of the ggml family for mm.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

constexpr const char* kVariable = "GGML_BACKWARD_MM";
constexpr int kProducts = 11;  // two layers of seven, of which the first layer's q, k, v and what lies below pass none

// The variable as a child process sees it, unset again afterwards.
class Environment {
 public:
  explicit Environment(const char* value) {
    if (value == nullptr)
      unsetenv(kVariable);
    else
      setenv(kVariable, value, 1);
  }
  ~Environment() { unsetenv(kVariable); }
};

json bwd_of(const Outcome& run) {
  EXPECT_EQ(run.status, 0) << run.err;
  return run.json_lines().at(0).at("bwd");
}

json counts(const char* requested, bool inherited, int fused, int mm, int outprod, int quantised = 0) {
  return {{"requested", requested}, {"inherited", inherited},       {"fused", fused}, {"mm", mm}, {"outprod", outprod},
          {"stridedGradients", 0},  {"quantisedWeights", quantised}};
}

std::vector<std::string> short_run(const Workplace& place, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--jsonl", "--overwrite"});
  std::vector<std::string> arguments = place.train_arguments("out", more);
  *(std::find(arguments.begin(), arguments.end(), "--steps") + 1) = "1";
  return arguments;
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Bwd, TheFlagChoosesAndTheLogTellsWhatRan) {
  const Workplace place({.dtype = DType::kBF16});
  std::string adapter;
  for (const char* name : {"fused", "mm", "outprod"}) {
    const Outcome run = place.run(short_run(place, {"--bwd", name}));
    const std::string_view which = name;
    const json expected = counts(name, false, which == "fused" ? kProducts : 0, which == "mm" ? kProducts : 0,
                                 which == "outprod" ? kProducts : 0);
    EXPECT_EQ(bwd_of(run), expected);
    EXPECT_EQ(json::parse(read_file(place.path("out/train_log.json"))).at("start").at("bwd"), expected);
    EXPECT_NE(run.err.find("through frozen products: 11 by " + std::string(name)), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find(kVariable), std::string::npos);
    const std::string bytes = read_file(place.path("out/adapter_model.safetensors"));
    if (adapter.empty()) adapter = bytes;
    EXPECT_EQ(bytes, adapter) << name << ": the same chains of multiply-adds, so the same adapter";
  }
  EXPECT_EQ(bwd_of(place.run(short_run(place))), counts("fused", false, kProducts, 0, 0));
  const Outcome wrong = place.run(short_run(place, {"--bwd", "gemm"}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("gemm"), std::string::npos) << wrong.err;
}

TEST(Bwd, TheVariableIsReadAsGgmlsReadersDo) {
  const Workplace place({.dtype = DType::kBF16, .layers = 1});
  struct {
    const char* value;
    bool on;
  } const table[] = {{nullptr, false}, {"", false},  {"0", false}, {"1", true},  {"00", true}, {"false", true},
                     {"off", true},    {" 0", true}, {"0 ", true}, {"no", true}, {"-0", true}, {" ", true}};
  for (const auto& [value, on] : table) {
    const std::string shown = value == nullptr ? "unset" : "\"" + std::string(value) + "\"";
    const Environment environment(value);
    const Outcome run = place.run(short_run(place));
    const json bwd = bwd_of(run);
    EXPECT_EQ(bwd.at("requested"), on ? "mm" : "fused") << shown;
    EXPECT_EQ(bwd.at("inherited"), on) << shown;
    EXPECT_EQ(bwd.at("mm").get<int>() > 0, on) << shown;
    EXPECT_EQ(bwd.at("fused").get<int>() > 0, !on) << shown;
    EXPECT_EQ(bwd.at("outprod"), 0) << shown;
    EXPECT_EQ(occurrences(run.err, kVariable), on ? 1u : 0u) << shown << run.err;
    EXPECT_EQ(run.err.find("--bwd fused is") != std::string::npos, on) << run.err;
  }
}

// Everything a run writes, without times and memory, which no two runs share.
std::string written(const Workplace& place, const Outcome& run) {
  std::string text;
  for (json event : run.json_lines())
    if (event.at("event") != "memory") {
      if (event.at("event") == "checkpoint") event.erase("bytes");  // it holds times, as text
      for (const char* field : {"ms", "tokensPerSecond", "residentBytes", "anonymousBytes", "etaMs"})
        event.erase(field);
      text += event.dump() + "\n";
    }
  return text + read_file(place.path("out/adapter_model.safetensors")) + read_file(place.path("out/adapter.gguf"));
}

TEST(Bwd, TheFlagIsStrongerThanTheVariable) {
  const Workplace place({.dtype = DType::kBF16});
  for (const char* name : {"fused", "outprod"}) {
    std::string without;
    for (const char* value : {static_cast<const char*>(nullptr), "1"}) {
      const Environment environment(value);
      const Outcome run = place.run(short_run(place, {"--bwd", name}));
      ASSERT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(run.err.find(kVariable), std::string::npos) << run.err;
      if (value == nullptr) without = written(place, run);
      EXPECT_EQ(written(place, run), without) << name;
    }
  }
  place.write("run.ini", "bwd = outprod\n");
  const Environment environment("1");
  EXPECT_EQ(bwd_of(place.run(short_run(place, {"--config", place.path("run.ini")}))),
            counts("outprod", false, 0, 0, kProducts));
}

TEST(Bwd, MmOnQuantisedWeightsIsSaidOnce) {
  const Workplace place({.dtype = DType::kQ8_0});
  const Outcome run = place.run(short_run(place, {"--bwd", "mm"}));
  EXPECT_EQ(bwd_of(run), counts("mm", false, 0, 0, kProducts, kProducts));
  std::vector<json> warnings;
  for (const json& event : run.json_lines())
    if (event.at("event") == "warning") warnings.push_back(event);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].at("count"), kProducts);
  const std::string message = warnings[0].at("message");
  EXPECT_NE(message.find("11 frozen products"), std::string::npos) << message;
  EXPECT_NE(message.find("outprod"), std::string::npos) << message;
  EXPECT_EQ(occurrences(run.err, message), 1u) << run.err;
  EXPECT_EQ(json::parse(read_file(place.path("out/train_log.json"))).at("warnings"), json({message}));
}

TEST(Bwd, OtherCommandsTakeNoNotice) {
  const Workplace place;
  const auto evaluate = [&] {
    return place.run({"eval", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl"), "--json"});
  };
  const Outcome plain = evaluate();
  const Environment environment("1");
  const Outcome set = evaluate();
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(json::parse(plain.out).at("loss"), json::parse(set.out).at("loss"));
  EXPECT_EQ(set.err.find(kVariable), std::string::npos) << set.err;
}

}  // namespace
}  // namespace patina::testing
