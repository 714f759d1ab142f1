// Disks that fail and files that shrink: what a run loses, and what it says.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Steps that save each time; a rank whose checkpoints take about 100 kB.
std::vector<std::string> saving(const Workplace& place, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = place.train_arguments("out", {"--save-every", "1", "--sites", "q"});
  set_flag(arguments, "--steps", "6");
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

#if !PATINA_SANITIZED  // a sanitizer must be the first library
Prepare failing(const std::string& call, const std::string& path, int at) {
  return [=] {
    setenv("LD_PRELOAD", PATINA_FAILING_CALLS, 1);
    setenv("PATINA_FAIL", call.c_str(), 1);
    setenv("PATINA_FAIL_PATH", path.c_str(), 1);
    setenv("PATINA_FAIL_AT", std::to_string(at).c_str(), 1);
  };
}

TEST(Faults, ASignalLeavesNoHalfWrittenFile) {
  const Workplace place;
  ASSERT_EQ(place.train("run").status, 0);
  const std::string model = place.path("model.gguf");
  const std::vector<std::string> adapter = {"--model", model, "--adapter", place.path("run"), "--out"};
  std::vector<std::vector<std::string>> lines = {{"convert", "--type", "f16", "--model", model, "--out"},
                                                 {"merge", "--type", "f16"},
                                                 {"export", "--format", "gguf"},
                                                 {"export", "--format", "peft"}};
  for (size_t i = 1; i < lines.size(); ++i) lines[i].insert(lines[i].end(), adapter.begin(), adapter.end());
  for (std::vector<std::string>& line : lines) {
    line.push_back(place.path("new/out"));
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      fs::create_directories(place.path("new"));
      const Prepare prepare = [signal] {
        failing("write", ".tmp", 1)();
        setenv("PATINA_FAIL_SIGNAL", std::to_string(signal).c_str(), 1);
      };
      const Outcome run = place.start(line, {}, prepare).wait();
      EXPECT_EQ(run.status, 1000 + signal) << line[0] << run.err;
      for (const auto& entry : fs::recursive_directory_iterator(place.path("new")))
        EXPECT_TRUE(entry.is_directory()) << line[0] << " left " << entry.path();
      fs::remove_all(place.path("new"));
    }
  }
}

// A call, and how many of them go well: about two checkpoints.
class EveryCall : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(EveryCall, ThatFailsInACheckpointIsSaidAndTheRunGoesOn) {
  const Workplace place;
  const Outcome run =
      place.start(saving(place), {}, failing(GetParam().first, "checkpoints", GetParam().second)).wait();
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("no checkpoint after step"), std::string::npos) << run.err;
  EXPECT_TRUE(fs::exists(place.path("out/adapter.gguf")));
  int saved = 0;
  for (const auto& entry : fs::directory_iterator(place.path("out/checkpoints"))) {
    EXPECT_EQ(entry.path().extension(), ".safetensors") << entry.path();
    ++saved;
  }
  EXPECT_GT(saved, 0) << "the last good ones stay";

  // What is there is good: the run goes on from it, to the same adapter.
  const std::string adapter = read_file(place.path("out/adapter.gguf"));
  const Outcome again = place.run(saving(place, {"--resume"}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.err.find("going on after step"), std::string::npos) << again.err;
  EXPECT_TRUE(read_file(place.path("out/adapter.gguf")) == adapter);
}

TEST_P(EveryCall, ThatFailsInTheExportEndsTheRunInOneLineWithItsCheckpoint) {
  const Workplace place;
  const std::string call = GetParam().first;
  const Outcome run =
      place.start(saving(place), {}, failing(call, call == "rename" ? "out/adapter" : "out/.patina", 0)).wait();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_FALSE(fs::exists(place.path("out/adapter_config.json")));
  EXPECT_TRUE(fs::exists(place.path("out/checkpoints/step-00000006.safetensors")));
  const Outcome again = place.run(saving(place, {"--resume"}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(fs::exists(place.path("out/adapter_config.json")));
}

INSTANTIATE_TEST_SUITE_P(Calls, EveryCall,
                         ::testing::Values(std::pair{"write", 20}, std::pair{"fsync", 5}, std::pair{"rename", 2}),
                         [](const auto& tested) { return std::string(tested.param.first); });
#endif

// As a full disk, with a limit on the size of files: a checkpoint does not fit under it, the adapter does or does not.
TEST(Faults, AFullDiskIsSaidAndWhatFitsIsWritten) {
  for (const rlim_t bytes : {30000, 10000}) {
    const Workplace place;
    const Outcome run = place
                            .start(saving(place), {},
                                   [bytes] {
                                     const rlimit limit{bytes, bytes};
                                     setrlimit(RLIMIT_FSIZE, &limit);
                                   })
                            .wait();
    const bool fits = bytes == 30000;
    EXPECT_EQ(run.status, fits ? 0 : 1) << run.err;
    EXPECT_NE(run.err.find("no checkpoint after step 1: "), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("File too large"), std::string::npos) << run.err;
    EXPECT_EQ(fs::exists(place.path("out/adapter_config.json")), fits);
    EXPECT_TRUE(fs::is_empty(place.path("out/checkpoints")));
  }
}

TEST(Faults, ACheckpointIsNoAdapter) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  const std::string checkpoint = place.path("out/checkpoints/step-00000003.safetensors");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"eval", "--data", place.path("data.jsonl"), "--adapter", checkpoint},
        {"export", "--format", "gguf", "--out", place.path("x.gguf"), "--adapter", checkpoint},
        {"train-lm", "--data", place.path("data.jsonl"), "--out", place.path("x"), "--init-adapter", checkpoint}}) {
    std::vector<std::string> arguments = line;
    arguments.insert(arguments.end(), {"--model", place.path("model.gguf")});
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("step-00000003.safetensors: is a checkpoint of a training run, expected an adapter"),
              std::string::npos)
        << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
  }
}

TEST(Faults, AnExportDoesNotMixWithAnotherAdapter) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  ASSERT_EQ(place.train("other").status, 0);
  const Outcome run = place.run({"export", "--model", place.path("model.gguf"), "--adapter", place.path("out"),
                                 "--format", "peft", "--out", place.path("other"), "--overwrite"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("other: holds adapter.gguf of another adapter"), std::string::npos) << run.err;
}

TEST(Faults, AModelThatIsCutWhileItIsReadIsNamedInOneLine) {
  const Workplace place;
  std::vector<std::string> arguments = place.train_arguments("out", {"--jsonl"});
  set_flag(arguments, "--steps", "100000");
  const Process process = place.start(arguments);
  process.await_event("step");
  fs::resize_file(place.path("model.gguf"), 4096);
  const Outcome run = process.wait();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("patina: " + place.path("model.gguf") + ": became shorter"), std::string::npos) << run.err;
}

TEST(Faults, AReadOnlyDirectoryIsRefusedBeforeAnyStep) {
  const Workplace place;
  std::vector<std::string> arguments = saving(place);
  set_flag(arguments, "--out", "/proc/patina_out");  // where root cannot write either
  const Outcome run = place.run(arguments);
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("--out /proc/patina_out: cannot be written"), std::string::npos) << run.err;
  EXPECT_EQ(run.error_lines(), 1u) << run.err;
}

TEST(Faults, AValidationThatDivergesSaysSo) {
  const Workplace place;
  std::vector<std::string> arguments =
      place.train_arguments("out", {"--grad-clip", "0", "--val", place.path("data.jsonl"), "--eval-every", "1"});
  set_flag(arguments, "--lr", "1e15");
  const Outcome run = place.run(arguments);
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("the adapter has diverged; lower --lr; no adapter was written"), std::string::npos) << run.err;
}

TEST(Faults, WhatIsNoFileIsNotReplaced) {
  const Workplace place;
  ASSERT_EQ(mkfifo(place.path("pipe").c_str(), 0600), 0);
  const Outcome run = place.run(
      {"convert", "--model", place.path("model.gguf"), "--type", "f16", "--out", place.path("pipe"), "--overwrite"});
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("pipe: expected a file to write, found a device"), std::string::npos) << run.err;
  EXPECT_TRUE(fs::is_fifo(place.path("pipe")));
}

TEST(Faults, AnAdapterIsNotReplacedByWhatIsMadeOfIt) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  const std::string model = place.path("model.gguf"), out = place.path("out"), gguf = place.path("out/adapter.gguf");
  const std::vector<std::string> merge = {"merge", "--model", model, "--overwrite", "--type", "f16"};
  const std::vector<std::string> to_peft = {"export", "--model", model, "--overwrite", "--format", "peft"};
  const std::vector<std::string> to_gguf = {"export", "--model", model, "--overwrite", "--format", "gguf"};
  const std::string bytes = read_file(gguf);
  for (auto [line, from, to] : {std::tuple{merge, gguf, gguf}, std::tuple{to_peft, out, out},
                                std::tuple{to_peft, gguf, out}, std::tuple{to_gguf, out, gguf}}) {
    line.insert(line.end(), {"--adapter", from, "--out", to});
    const Outcome run = place.run(line);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_NE(run.err.find("the adapter that is read lies there"), std::string::npos) << run.err;
  }
  EXPECT_TRUE(read_file(gguf) == bytes);
}

TEST(Faults, ValuesThatNothingCanTakeAreRefusedBeforeTheRun) {
  const Workplace place;
  for (const auto& [flag, value] : {std::pair{"--trigger", "b\xff"}, std::pair{"--alpha-pattern", "q=1e39"},
                                    std::pair{"--init-adapter", ""}, std::pair{"--val", ""}}) {
    const Outcome run = place.train("out", {flag, value});
    EXPECT_EQ(run.status, 2) << flag << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_FALSE(fs::exists(place.path("out"))) << flag;
  }
}

TEST(Faults, NumbersThatAreNoneAreRefusedWithTheirFlag) {
  const Workplace place;
  for (const char* flag : {"--dropout", "--weight-decay", "--grad-clip", "--warmup", "--muon-scale",
                           "--lora-plus-ratio", "--target-loss", "--rank", "--lokr-alpha"})
    for (const char* value : {"nan", "-inf", "x"}) {
      const Outcome run = place.run({"train-lm", "--model", place.path("model.gguf"), "--data",
                                     place.path("data.jsonl"), "--out", place.path("out"), flag, value});
      EXPECT_EQ(run.status, 2) << flag << run.err;
      EXPECT_EQ(run.error_lines(), 1u) << run.err;
      EXPECT_NE(run.err.find(flag), std::string::npos) << run.err;
    }
}

TEST(Faults, FieldIssue19_StepsThatAreNotFiniteEndTheRunWithTheLastGoodState) {
  const Workplace place;
  std::vector<std::string> arguments = saving(place, {"--grad-clip", "0", "--jsonl", "--max-bad-steps", "2"});
  set_flag(arguments, "--lr", "1e30");
  const Outcome run = place.run(arguments);
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("step 2 was not applied: the loss is"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("patina: step 3 of 6: "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("at layers.0."), std::string::npos) << run.err;
  EXPECT_TRUE(fs::exists(place.path("out/adapter.gguf")));
  EXPECT_TRUE(fs::exists(place.path("out/checkpoints/step-00000003.safetensors")));
  EXPECT_NE(read_file(place.path("out/report.html")).find("ended: step 3 of 6: "), std::string::npos);
  EXPECT_NE(read_file(place.path("out/events.jsonl")).find("\"event\":\"fatal\""), std::string::npos);
  const json last = run.json_lines().back();
  EXPECT_EQ(last.at("event"), "fatal");
  EXPECT_EQ(last.at("reason"), "nonfinite");

  // Norms that are not finite stand in the log that a resumed run reads back.
  EXPECT_NE(read_file(place.path("out/events.jsonl")).find("null"), std::string::npos);
  arguments.push_back("--resume");
  const Outcome again = place.run(arguments);
  EXPECT_EQ(again.status, 1);
  EXPECT_NE(again.err.find("the step was not applied"), std::string::npos) << again.err;
}

}  // namespace
}  // namespace patina::testing
