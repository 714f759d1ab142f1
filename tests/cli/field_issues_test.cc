// What users of such trainers trip over, seen from the command line; the others are in tests/train, tests/data and
// tests/formats under the same kind of name.
#include <gtest/gtest.h>

#include <set>

#include "base/threads.h"
#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

TEST(FieldIssues, FieldIssue03_EveryDefaultWorks) {
  const Workplace place;
  const std::string model = place.path("model.gguf"), data = place.path("data.jsonl"), out = place.path("out");
  const Outcome train = place.run({"train-lm", "--model", model, "--data", data, "--out", out});
  EXPECT_EQ(train.status, 0) << train.err;
  EXPECT_EQ(train.err.find("warning"), std::string::npos) << train.err;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"generate", "--model", model, "--prompt", "What sails?"},
        {"generate", "--model", model, "--adapter", out, "--prompt", "What sails?"},
        {"eval", "--model", model, "--data", data},
        {"eval", "--model", model, "--adapter", out, "--data", data},
        {"inspect", model},
        {"inspect", out}}) {
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 0) << arguments[0] << run.err;
    EXPECT_NE(run.out, "") << arguments[0];
  }
  // A model whose context is shorter than the default is trained at its own.
  const Workplace shorter({.context = 100});
  EXPECT_EQ(shorter
                .run({"train-lm", "--model", shorter.path("model.gguf"), "--data", shorter.path("data.jsonl"), "--out",
                      shorter.path("out")})
                .status,
            0);
}

TEST(FieldIssues, FieldIssue04_WhatIsNotSupportedIsRefusedBeforeAnyStep) {
  for (const auto& [options, named] : {std::pair{TinyModel{.architecture = "gizmo"}, "gizmo"},
                                       std::pair{TinyModel{.dtype = DType::kI32}, "type I32"}}) {
    const Workplace place(options);
    const Outcome run = place.train("out", {"--jsonl"});
    EXPECT_EQ(run.status, 1);
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find(named), std::string::npos) << run.err;
    ASSERT_EQ(run.json_lines().size(), 1u) << run.out;
    EXPECT_EQ(run.json_lines()[0].at("event"), "fatal");
    EXPECT_EQ(run.json_lines()[0].at("reason"), "model");
    EXPECT_FALSE(std::filesystem::exists(place.path("out")));
  }
}

TEST(FieldIssues, FieldIssue14_TheLogHoldsTheGradientNormOfEveryTarget) {
  const Workplace place;
  std::vector<std::string> arguments = place.train_arguments("out");
  *(std::find(arguments.begin(), arguments.end(), "--steps") + 1) = "1";
  ASSERT_EQ(place.run(arguments).status, 0);
  const json norms = json::parse(read_file(place.path("out/train_log.json"))).at("epochs").at(0).at("gradNorms");
  for (int layer = 0; layer < 2; ++layer)
    for (const char* site : {"q", "k", "v", "o", "gate", "up", "down"}) {
      const std::string name = fmt::format("layers.{}.{}.lora_", layer, site);
      ASSERT_TRUE(norms.contains(name + "a") && norms.contains(name + "b")) << name;
      EXPECT_GT(norms.at(name + "b").get<double>(), 0.0) << name;
    }
}

TEST(FieldIssues, FieldIssue16_TheConfigListsResolvedModuleNames) {
  const Workplace place;
  const auto modules = [&](const char* sites) {
    EXPECT_EQ(place.train("out", {"--sites", sites, "--overwrite"}).status, 0);
    const json config = json::parse(read_file(place.path("out/adapter_config.json")));
    return config.at("target_modules").get<std::set<std::string>>();
  };
  EXPECT_EQ(modules("all"),
            (std::set<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(modules("attn"), (std::set<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"}));
  EXPECT_EQ(modules("attn_q,up_proj"), (std::set<std::string>{"q_proj", "up_proj"}));
}

TEST(FieldIssues, FieldIssue16_AnAdapterOfAnotherModelIsRefused) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  for (const TinyModel& options : {TinyModel{.layers = 1}, TinyModel{.width = 128}, TinyModel{.feed_forward = 256}}) {
    const Workplace other(options);
    for (const char* file : {"out", "out/adapter.gguf"})
      for (const char* command : {"generate", "eval"}) {
        std::vector<std::string> arguments = {command, "--model", other.path("model.gguf"), "--adapter",
                                              place.path(file)};
        if (std::string(command) == "eval")
          arguments.insert(arguments.end(), {"--data", other.path("data.jsonl")});
        else
          arguments.insert(arguments.end(), {"--prompt", "x"});
        const Outcome run = other.run(arguments);
        EXPECT_EQ(run.status, 1) << run.err;
        EXPECT_EQ(run.error_lines(), 1u) << run.err;
        EXPECT_EQ(run.out, "");
        EXPECT_NE(run.err.find("layers."), std::string::npos) << run.err;
      }
  }
}

TEST(FieldIssues, FieldIssue17_SitesMatchWholeNames) {
  const Workplace place;
  for (const char* list : {"attn_q_norm", "out", "gat", "q_", "head"}) {
    const Outcome run = place.train("out", {"--sites", list});
    EXPECT_EQ(run.status, 2) << list;
    EXPECT_NE(run.err.find(list), std::string::npos) << run.err;
  }
  // "output" is GGUF's name of the head, never of attn_output.
  const Outcome head = place.train("out", {"--sites", "output"});
  EXPECT_EQ(head.status, 2);
  EXPECT_NE(head.err.find("lm_head"), std::string::npos) << head.err;
}

#if !PATINA_SANITIZED  // a sanitizer keeps what is freed
TEST(FieldIssues, FieldIssue24_MemoryIsFlatOver200StepsOfVaryingLength) {
  const Workplace place;
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += json{{"text", std::string(static_cast<size_t>(3 + i * 37 % 101), 'a') + std::to_string(i)}}.dump() + "\n";
  const std::string data = place.write("lengths.jsonl", lines).string();
  for (const char* recompute : {"off", "layer"}) {
    const Outcome run = place.run({"train-lm", "--model", place.path("model.gguf"), "--data", data, "--out",
                                   place.path("out"), "--overwrite", "--steps", "200", "--context", "128",
                                   "--batch-tokens", "128", "--recompute", recompute, "--jsonl"});
    ASSERT_EQ(run.status, 0) << run.err;
    std::vector<int64_t> bytes;
    std::set<int64_t> lengths;
    for (const json& event : run.json_lines())
      if (event.at("event") == "step") {
        bytes.push_back(event.at("anonymousBytes"));
        lengths.insert(event.at("tokens").get<int64_t>());
      }
    ASSERT_EQ(bytes.size(), 200u);
    EXPECT_GT(lengths.size(), 5u);
    // The first steps touch what the allocator has not handed out before.
    EXPECT_LE(*std::max_element(bytes.begin() + 10, bytes.end()) - bytes[10], 256 << 10) << recompute;
  }
}
#endif

TEST(FieldIssues, FieldIssue25_TheDefaultIsAllPhysicalCores) {
  const Workplace place;
  const Outcome run = place.train("out", {"--jsonl"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json_lines().at(0).at("threads"), default_threads());
  EXPECT_EQ(place.train("three", {"--threads", "3", "--jsonl"}).json_lines().at(0).at("threads"), 3);
  EXPECT_EQ(read_file(place.path("out/adapter.gguf")), read_file(place.path("three/adapter.gguf")));
}

}  // namespace
}  // namespace patina::testing
