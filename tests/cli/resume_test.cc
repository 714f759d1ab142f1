// Runs that end in the middle, and go on.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <random>
#include <thread>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kAdapter = "adapter_model.safetensors";

// A run of twelve shuffled steps, four to an epoch, that saves after every step. One layer, so that it is quick.
class LongRun : public Workplace {
 public:
  explicit LongRun(std::vector<std::string> more = {})
      : Workplace({.layers = 1, .width = 64, .feed_forward = 64}), more_(std::move(more)) {}

  std::vector<std::string> arguments(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"train-lm",
                                    "--model",
                                    path("model.gguf"),
                                    "--data",
                                    path("data.jsonl"),
                                    "--out",
                                    path(out),
                                    "--steps",
                                    "12",
                                    "--rank",
                                    "16",
                                    "--lr",
                                    "2e-3",
                                    "--context",
                                    "64",
                                    "--batch-tokens",
                                    "64",
                                    "--save-every",
                                    "1"};
    all.insert(all.end(), more_.begin(), more_.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // As PEFT has it, or LyCORIS where PEFT has no form for it.
  std::string adapter(const std::string& out) const {
    const std::string peft = path(out + "/" + kAdapter);
    return read_file(fs::exists(peft) ? peft : path(out + "/adapter.safetensors"));
  }
  // The steps that events.jsonl holds, in order.
  std::vector<json> steps(const std::string& out) const {
    std::vector<json> found;
    std::istringstream lines(read_file(path(out + "/events.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (json event = json::parse(line); event.at("event") == "step") found.push_back(event);
    return found;
  }
  std::vector<fs::path> checkpoints(const std::string& out) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(path(out + "/checkpoints"))) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }
  // Both runs came to the same adapter, and both logs hold each step once.
  void expect_same(const std::string& straight, const std::string& other) const {
    EXPECT_TRUE(adapter(straight) == adapter(other));
    if (const std::string gguf = path(straight + "/adapter.gguf"); fs::exists(gguf)) {  // not of every kind
      EXPECT_TRUE(read_file(gguf) == read_file(path(other + "/adapter.gguf")));
    }
    const std::vector<json> expected = steps(straight), found = steps(other);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i].at("step"), i + 1);
      EXPECT_EQ(found[i].at("loss"), expected[i].at("loss"));
      EXPECT_EQ(found[i].at("lr"), expected[i].at("lr"));
    }
    const auto epochs = [&](const std::string& out) {
      const json log = json::parse(read_file(path(out + "/train_log.json")));
      std::string losses;
      for (const json& epoch : log.at("epochs")) losses += epoch.at("loss").dump() + " ";
      return losses;
    };
    EXPECT_EQ(epochs(straight), epochs(other));
  }

 private:
  std::vector<std::string> more_;
};

class Killed : public ::testing::TestWithParam<const char*> {};

// 25 kills for each optimizer, at moments spread over the time that a whole run takes: the start, steps, saves, the
// export at the end.
TEST_P(Killed, FieldIssue23_AtAnyMomentARunGoesOnToTheBit) {
  const LongRun place({"--optimizer", GetParam()});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(place.run(place.arguments("straight")).status, 0);
  const double run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::mt19937 random(1);
  std::uniform_real_distribution<double> moment(0.0, 1.1);
  int kills = 0, rounds = 0, resumed = 0;
  while (kills < 25) {
    ASSERT_LT(++rounds, 200) << kills << " kills";
    fs::remove_all(place.path("out"));
    for (bool killed = true; killed;) {
      const Process process = place.start(place.arguments("out", {"--resume"}));
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(moment(random) * run_ms));
      kill(process.id(), SIGKILL);
      const Outcome outcome = process.wait();
      killed = outcome.status == 1000 + SIGKILL;
      ASSERT_TRUE(killed || outcome.status == 0) << outcome.err;
      kills += killed;
      resumed += outcome.err.find("going on after step") != std::string::npos;
    }
    place.expect_same("straight", "out");
    for (const fs::path& path : place.checkpoints("out"))
      EXPECT_NE(path.extension(), ".tmp") << "what was half written is gone";
  }
  EXPECT_GT(resumed, 5);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Killed, ::testing::Values("adamw", "muon"));

class KilledKind : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

// Killed after its third step and again after its eighth, with dropout on.
TEST_P(KilledKind, FieldIssue23_GoesOnToTheBit) {
  const auto [type, optimizer] = GetParam();
  std::vector<std::string> flags = {"--adapter-type", type, "--optimizer", optimizer, "--dropout", "0.1"};
  const LongRun place(flags);
  const auto arguments = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> all = place.arguments(out, more);
    if (std::string(type) == "lokr") *std::ranges::find(all, "--rank") = "--lokr-dim";
    return all;
  };
  ASSERT_EQ(place.run(arguments("straight", {})).status, 0);
  for (const int step : {3, 8}) {
    const Process process = place.start(arguments("out", {"--resume", "--jsonl"}));
    while (process.out_so_far().find(fmt::format("\"event\":\"checkpoint\",\"step\":{},", step)) == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(process.id(), SIGKILL);
    process.wait();  // it may have come to its end before
  }
  const Outcome last = place.run(arguments("out", {"--resume"}));
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_NE(last.err.find("going on after step"), std::string::npos) << last.err;
  place.expect_same("straight", "out");
}

INSTANTIATE_TEST_SUITE_P(Kinds, KilledKind,
                         ::testing::Combine(::testing::Values("lora", "dora", "lokr"),
                                            ::testing::Values("adamw", "muon")));

TEST(Resume, AnInterruptedRunGoesOn) {
  const LongRun place;
  std::vector<std::string> arguments = place.arguments("straight", {"--jsonl"});
  set_flag(arguments, "--steps", "3000");  // more than are done before the signal comes
  set_flag(arguments, "--save-every", "end");
  ASSERT_EQ(place.run(arguments).status, 0);
  set_flag(arguments, "--out", place.path("out"));
  const Process process = place.start(arguments);
  process.await_event("step");
  kill(process.id(), SIGTERM);
  const Outcome first = process.wait();
  ASSERT_EQ(first.status, 128 + SIGTERM) << first.err;
  EXPECT_TRUE(fs::exists(place.path("out/adapter.gguf"))) << "exported";
  std::vector<std::string> resumed = arguments;
  resumed.push_back("--resume");
  const Outcome second = place.run(resumed);
  ASSERT_EQ(second.status, 0) << second.err;
  place.expect_same("straight", "out");
  std::string order;
  for (const json& event : second.json_lines()) {
    const std::string name = event.at("event");
    if (name != "step" && name != "epoch") order += name + " ";
  }
  EXPECT_EQ(order, "start model data memory resume checkpoint export export done ");
}

TEST(Resume, AFinishedRunOnlyExportsAgain) {
  const LongRun place;
  ASSERT_EQ(place.run(place.arguments("out")).status, 0);
  const std::string adapter = place.adapter("out");
  fs::remove(place.path("out/adapter.gguf"));
  const Outcome again = place.run(place.arguments("out", {"--resume", "--jsonl"}));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(place.adapter("out") == adapter);
  EXPECT_TRUE(fs::exists(place.path("out/adapter.gguf")));
  EXPECT_EQ(again.out.find("\"event\":\"step\""), std::string::npos);
}

TEST(Resume, ADamagedCheckpointIsPassedOver) {
  const LongRun place;
  ASSERT_EQ(place.run(place.arguments("straight")).status, 0);
  fs::copy(place.path("straight"), place.path("out"), fs::copy_options::recursive);
  const std::vector<fs::path> saved = place.checkpoints("out");
  ASSERT_EQ(saved.size(), 2u) << "--keep 2";
  EXPECT_EQ(saved[1].filename(), "step-00000012.safetensors");
  std::string bytes = read_file(saved[1]);
  write_file(saved[1], bytes.substr(0, bytes.size() / 2));
  const Outcome run = place.run(place.arguments("out", {"--resume"}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("step-00000012.safetensors"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("going on after step 11"), std::string::npos) << run.err;
  place.expect_same("straight", "out");

  for (const fs::path& path : place.checkpoints("out")) write_file(path, "no checkpoint");
  const Outcome refused = place.run(place.arguments("out", {"--resume"}));
  EXPECT_EQ(refused.status, 1) << refused.err;
  EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
}

TEST(Resume, FieldIssue23_AnotherSettingIsRefusedByNameAndAHarmlessOneIsNot) {
  const LongRun place;
  ASSERT_EQ(place.run(place.arguments("out")).status, 0);
  const std::string adapter = place.adapter("out");
  const std::pair<const char*, const char*> changes[] = {
      {"--lr", "1e-3"},        {"--rank", "8"},          {"--steps", "13"},        {"--seed", "1"},
      {"--optimizer", "muon"}, {"--warmup", "0"},        {"--sites", "q"},         {"--bwd", "mm"},
      {"--alpha", "3"},        {"--schedule", "linear"}, {"--grad-clip", "10"},    {"--loss-on", "all"},
      {"--context", "100"},    {"--layers", "1"},        {"--batch-tokens", "65"}, {"--micro-tokens", "60"}};
  for (const auto& [flag, value] : changes) {
    std::vector<std::string> arguments = place.arguments("out", {"--resume"});
    set_flag(arguments, flag, value);
    const Outcome run = place.run(arguments);
    if (std::string_view(flag) == "--layers") {  // the one layer that there is
      EXPECT_EQ(run.status, 0) << run.err;
      continue;
    }
    EXPECT_EQ(run.status, 2) << flag << run.err;
    EXPECT_NE(run.err.find(flag), std::string::npos) << run.err;
  }
  for (const auto& [more, said] :
       {std::pair{std::vector<std::string>{"--sites", "q,o"},
                  "--sites and --layers choose 2 matrices: layers.0.q, layers.0.o; the run in"},
        std::pair{std::vector<std::string>{"--val", "0.25"}, "--resume: there is --val 0.25; the run in"},
        std::pair{std::vector<std::string>{"--rslora"}, "was begun with no --rslora;"}}) {
    std::vector<std::string> arguments = place.arguments("out", {"--resume"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 2) << more[0];
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err;
  }
  EXPECT_EQ(
      place.run(place.arguments("out", {"--resume", "--threads", "3", "--keep", "7", "--recompute", "layer"})).status,
      0);
  EXPECT_TRUE(place.adapter("out") == adapter);
  place.write("data.jsonl", "{\"text\": \"Other words than before.\"}\n");
  const Outcome run = place.run(place.arguments("out", {"--resume"}));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("--data"), std::string::npos) << run.err;
}

TEST(Resume, WithoutACheckpointTheRunBegins) {
  const LongRun place;
  const Outcome run = place.run(place.arguments("out", {"--resume"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("begins with the first step"), std::string::npos) << run.err;
  EXPECT_EQ(place.run(place.arguments("out", {"--resume", "--overwrite"})).status, 2);
}

TEST(Resume, OverwriteForgetsTheEarlierRun) {
  const LongRun place;
  ASSERT_EQ(place.run(place.arguments("out")).status, 0);
  std::vector<std::string> shorter = place.arguments("out", {"--overwrite"});
  set_flag(shorter, "--steps", "3");
  ASSERT_EQ(place.run(shorter).status, 0);
  EXPECT_EQ(place.checkpoints("out").back().filename(), "step-00000003.safetensors");
  EXPECT_EQ(place.steps("out").size(), 3u);
}

TEST(Output, TwoRunsCannotHaveOneDirectory) {
  const LongRun place;
  std::vector<std::string> longer = place.arguments("out", {"--jsonl"});
  set_flag(longer, "--steps", "100000");
  const Process first = place.start(longer);
  first.await_event("step");
  const std::vector<std::string> ways[] = {{"--overwrite"}, {"--resume"}, {}};
  for (const std::vector<std::string>& way : ways) {
    const Outcome second = place.run(place.arguments("out", way), {place.path("out2.txt"), place.path("err2.txt")});
    EXPECT_EQ(second.status, 2);
    EXPECT_NE(second.err.find("another run"), std::string::npos) << second.err;
  }
  kill(first.id(), SIGKILL);
  first.wait();
  EXPECT_EQ(place.run(place.arguments("out", {"--overwrite"})).status, 0) << "a killed run holds no lock";
}

}  // namespace
}  // namespace patina::testing
