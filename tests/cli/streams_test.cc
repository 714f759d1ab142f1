// Standard streams that cannot be written, and signals that come early.
#include <gtest/gtest.h>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

constexpr const char* kFull = "/dev/full";

TEST(Streams, AStderrThatCannotBeWrittenEndsNoRun) {
  const Workplace place;
  for (const char* err : {kFull, kClosed}) {
    const Outcome run = place.run(place.train_arguments("out", {"--overwrite"}), {"", err});
    EXPECT_EQ(run.status, 0) << err;
    EXPECT_TRUE(std::filesystem::exists(place.path("out/adapter.gguf"))) << err;
  }
  EXPECT_EQ(place.run({"trian-lm"}, {"", kFull}).status, 2);
}

TEST(Streams, AStdoutThatCannotBeWrittenIsTold) {
  const Workplace place;
  const std::string model = place.path("model.gguf");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"eval", "--help"},
                                                    {"inspect", model},
                                                    {"inspect", model, "--json"},
                                                    {"eval", "--model", model, "--data", place.path("data.jsonl")},
                                                    {"generate", "--model", model, "--prompt", "x"}}) {
    const Outcome full = place.run(arguments, {kFull, ""});
    EXPECT_EQ(full.status, 1) << arguments[0];
    EXPECT_EQ(full.err, "patina: cannot write to standard output: No space left on device\n");
    EXPECT_EQ(place.run(arguments, {kClosed, ""}).status, 1) << arguments[0];
  }
}

TEST(Streams, ARunWithoutReaderOfItsEventsGoesOnAndTellsIt) {
  const Workplace place;
  const Outcome run = place.run(place.train_arguments("out", {"--jsonl"}), {kFull, ""});
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(run.err.ends_with("patina: cannot write to standard output: No space left on device\n")) << run.err;
  EXPECT_TRUE(std::filesystem::exists(place.path("out/adapter_config.json")));
}

TEST(Streams, ASignalBeforeTheFirstStepLeavesNothing) {
  const Workplace place;
  std::string text;  // long enough to be still read when the signal comes
  for (int i = 0; i < 400000; ++i) text += "Maren keeps the light of the otter.\n";
  place.write("long.txt", text);
  const Process process = place.start(
      {"train-lm", "--model", place.path("model.gguf"), "--data", place.path("long.txt"), "--out", place.path("out")});
  while (!std::filesystem::exists(place.path("out"))) {
    ASSERT_EQ(waitpid(process.id(), nullptr, WNOHANG), 0) << "it ended by itself";
    usleep(1000);
  }
  kill(process.id(), SIGHUP);
  const Outcome run = process.wait();
  EXPECT_EQ(run.status, 128 + SIGHUP) << run.err;
  EXPECT_NE(run.err.find("nothing was written"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(place.path("out")));
}

}  // namespace
}  // namespace patina::testing
