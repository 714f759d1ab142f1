#include <gtest/gtest.h>
#include <stdlib.h>

#include "cli/event_schema.h"
#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

// The rows of some rungs of every subject, without their times.
std::vector<json> rows(const Workplace& place, const char* variable) {
  const Process process =
      place.start({"self-test", "--only", "P5,SC3,LM4,T6", "--type", "BF16,Q8_0", "--jsonl"}, {}, [=] {
        if (variable == nullptr)
          unsetenv("GGML_BACKWARD_MM");
        else
          setenv("GGML_BACKWARD_MM", variable, 1);
      });
  const Outcome run = process.wait();
  EXPECT_EQ(run.status, 0) << run.err;
  std::vector<json> lines = run.json_lines();
  for (json& line : lines) {
    EXPECT_EQ(schema_fault(line), "");
    line.erase("ms");
  }
  return lines;
}

TEST(SelfTestCommand, TheVariableOfGgmlChangesNoRow) {
  const Workplace place;
  const std::vector<json> unset = rows(place, nullptr);
  ASSERT_EQ(unset.size(), 3u * 6 + 2 + 1);
  EXPECT_EQ(unset.back().at("event"), "selfTest");
  EXPECT_EQ(unset.back().at("failed"), 0);
  EXPECT_EQ(unset.back().at("copies"), 3);
  EXPECT_EQ(rows(place, "1"), unset);
  EXPECT_EQ(rows(place, "0"), unset);
}

TEST(SelfTestCommand, PrintsALineARung) {
  const Workplace place;
  for (const std::vector<std::string>& command : {std::vector<std::string>{"self-test"}, {"train-lm", "--self-test"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--only", "SC3,T2,P1", "--type", "F32,Q4_K"});
    const Outcome run = place.run(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    for (const char* text :
         {"\nP1   product", "\nT2   lm", "\nSC3  lm", "<= 1e-05, >= 1", "pass\n", "all passed", "ran once: as outprod"})
      EXPECT_NE(run.out.find(text), std::string::npos) << text << "\n" << run.out;
    EXPECT_EQ(run.out.find("LM7"), std::string::npos);
  }
}

TEST(SelfTestCommand, WrongFlagsAreOneLineEach) {
  const Workplace place;
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"self-test", "--only", "SC9"}, "\"SC9\" is no rung; choose from P1, P2"},
      {{"self-test", "--only", "SC3,"}, "an empty one"},
      {{"self-test", "--bwd", "fast"}, "choose from fused, mm, outprod"},
      {{"self-test", "--type", "Q9_0"}, "--type: \"Q9_0\""},
      {{"self-test", "--type", "F32,F32"}, "twice"},
      {{"self-test", "--threads", "0"}, "--threads"},
      {{"self-test", "--model", "m.gguf"}, "--model"},
      {{"train-lm", "--self-test", "--lr", "1"}, "--lr beside --self-test"},
      {{"train-lm", "--model=m.gguf", "--self-test"}, "--model beside --self-test"},
      {{"train-lm", "--self-test", "stray"}, "stray beside --self-test"},
      {{"train-lm", "--self-test", "--only", "T99"}, "T99"},
  };
  for (const auto& [arguments, text] : cases) {
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 2) << arguments.back() << run.out;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
  const Outcome planned = place.run(
      {"plan", "train-lm", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl"), "--self-test"});
  EXPECT_EQ(planned.status, 2);
  EXPECT_NE(planned.err.find("--self-test"), std::string::npos) << planned.err;
}

}  // namespace
}  // namespace patina::testing
