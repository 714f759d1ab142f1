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
  ASSERT_EQ(unset.size(), 5u * 6 + 2 + 1);  // P5, and SC3 and T6 of two models; LM4 of one; the end
  EXPECT_EQ(unset.back().at("event"), "selfTest");
  EXPECT_EQ(unset.back().at("failed"), 0);
  EXPECT_EQ(unset.back().at("copies"), 5);
  EXPECT_EQ(rows(place, "1"), unset);
  EXPECT_EQ(rows(place, "0"), unset);
}

TEST(SelfTestCommand, PrintsALineARung) {
  const Workplace place;
  struct Case {
    std::vector<std::string> command;
    bool lm, dit;
  };
  const Case cases[] = {{{"self-test"}, true, true},
                        {{"train-lm", "--self-test"}, true, false},
                        {{"train-dit", "--self-test"}, false, true}};
  for (const Case& one : cases) {
    std::vector<std::string> arguments = one.command;
    arguments.insert(arguments.end(), {"--only", "SC3,T2,P1", "--type", "F32,Q4_K"});
    const Outcome run = place.run(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    const auto prints = [&](const char* text) { return run.out.find(text) != std::string::npos; };
    for (const char* text : {"\nP1   product", "<= 1e-05, >= 1", "pass\n", "all passed", "ran once: as outprod"})
      EXPECT_TRUE(prints(text)) << text << "\n" << run.out;
    EXPECT_EQ(prints("\nT2   lm"), one.lm) << run.out;
    EXPECT_EQ(prints("\nSC3  lm"), one.lm) << run.out;
    EXPECT_EQ(prints("\nT2   dit"), one.dit) << run.out;
    EXPECT_EQ(prints("\nSC3  dit"), one.dit) << run.out;
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
      {{"train-lm", "--self-test", "--only", "T10"}, "\"T10\" is no rung"},
      {{"train-dit", "--self-test", "--crop", "8"}, "--crop beside --self-test"},
      {{"train-dit", "--self-test", "--only", "LM1"}, "\"LM1\" is no rung"},
  };
  for (const auto& [arguments, text] : cases) {
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 2) << arguments.back() << run.out;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
  for (const std::string command : {"train-lm", "train-dit"}) {
    const Outcome planned =
        place.run({"plan", command, "--model", place.path("model.gguf"), "--data", place.path("data"), "--self-test"});
    EXPECT_EQ(planned.status, 2);
    EXPECT_NE(planned.err.find("run patina " + command + " --self-test"), std::string::npos) << planned.err;
  }
}

}  // namespace
}  // namespace patina::testing
