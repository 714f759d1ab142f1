#include <gtest/gtest.h>

#include <cmath>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

json event_named(const Outcome& outcome, const std::string& name) {
  for (const json& event : outcome.json_lines())
    if (event.at("event") == name) return event;
  ADD_FAILURE() << "no event " << name << "\n" << outcome.out << outcome.err;
  return {};
}

std::vector<std::string> planned(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return arguments;
}

// A text of more than 2 x 512 tokens of the tiny model.
std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 6000; ++i) text += std::to_string(i * 7919 % 1000) + " ";
  return text;
}

TEST(Plan, SaysWhatTheRunSaysAndWritesNothing) {
  const Workplace place;
  const std::vector<std::string> arguments = place.train_arguments("out", {"--jsonl"});
  const Outcome plan = place.run(planned(arguments));
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_FALSE(std::filesystem::exists(place.path("out")));
  std::string order;
  for (const json& event : plan.json_lines()) order += event.at("event").get<std::string>() + " ";
  EXPECT_EQ(order, "start model data memory plan ");

  const Outcome run = place.run(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  json planned_memory = event_named(plan, "memory"), memory = event_named(run, "memory");
  EXPECT_NEAR(planned_memory.at("process").get<double>(), memory.at("process").get<double>(), 1e6);
  for (json* event : {&planned_memory, &memory}) {
    event->erase("process");
    event->erase("planned");
    event->erase("budget");  // of what was free just then
  }
  EXPECT_EQ(planned_memory, memory);
  const json event = event_named(plan, "plan");
  EXPECT_EQ(event.at("totalSteps"), 3);
  EXPECT_GT(event.at("gflops").get<double>(), 0);
  EXPECT_GT(event.at("stepMs").get<double>(), 0);
  json start = event_named(plan, "start"), run_start = event_named(run, "start");
  EXPECT_EQ(start.at("command"), "plan train-lm");
  start.erase("command");
  run_start.erase("command");
  EXPECT_EQ(start, run_start);
}

TEST(Plan, TextNamesEveryKind) {
  const Workplace place;
  const Outcome plan = place.run(
      {"plan", "train-lm", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl")});  // needs no --out
  ASSERT_EQ(plan.status, 0) << plan.err;
  for (const char* kind :
       {"weights", "trainables", "moments", "saved", "scratch", "data", "process", "sum", "estimate"})
    EXPECT_NE(plan.out.find(kind), std::string::npos) << kind << " in\n" << plan.out;
}

TEST(Plan, RefusesWhatTrainLmRefuses) {
  const Workplace place;
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"--context", "100000"}, {"--rank", "0"}, {"--sites", "lm_head"}, {"--batch-tokens", "3"}, {"--unknown"}}) {
    std::vector<std::string> arguments = place.train_arguments("out");
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    const Outcome run = place.run(arguments), plan = place.run(planned(arguments));
    EXPECT_EQ(plan.status, run.status);
    EXPECT_NE(plan.status, 0) << wrong[0];
    EXPECT_EQ(plan.err.substr(0, plan.err.find(" (see")), run.err.substr(0, run.err.find(" (see"))) << wrong[0];
  }
  const Outcome other = place.run({"plan", "generate"});
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("train-lm"), std::string::npos) << other.err;
  EXPECT_EQ(place.run({"plan", "--help"}).status, 0);
  EXPECT_EQ(place.run({"plan", "train-lm", "--help"}).status, 0);
}

TEST(Plan, MemoryOfEveryKindOfAdapterIsThePlanned) {
  const Workplace place({.layers = 4, .feed_forward = 1024, .tied_head = false});
  const std::string text = place.write("text.txt", long_text()).string();
  for (const std::vector<std::string>& kind :
       std::vector<std::vector<std::string>>{{"dora", "--rank", "64"},
                                             {"lokr", "--lokr-dim", "1000", "--lokr-factor", "4"},
                                             {"lokr", "--lokr-dim", "8", "--dropout", "0.1"},
                                             {"dora", "--sites", "all,lm_head", "--dropout", "0.1"}}) {
    std::vector<std::string> arguments = {"train-lm",
                                          "--model",
                                          place.path("model.gguf"),
                                          "--data",
                                          text,
                                          "--out",
                                          place.path("out"),
                                          "--steps",
                                          "2",
                                          "--overwrite",
                                          "--jsonl",
                                          "--context",
                                          "512",
                                          "--batch-tokens",
                                          "512",
                                          "--adapter-type"};
    arguments.insert(arguments.end(), kind.begin(), kind.end());
    const Outcome run = place.run(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    const json memory = event_named(run, "memory");
    const double plan = memory.at("planned").get<double>() - memory.at("weights").get<double>();
    const double taken = event_named(run, "step").at("anonymousBytes").get<double>();
    EXPECT_TRUE(std::abs(taken - plan) <= std::max(0.03 * plan, 1e6)) << kind[0] << ": " << plan << ", " << taken;
  }
}

// Weights are pages of a file; everything else that is planned must be what the process takes of anonymous memory.
TEST(Plan, MemoryOfARunIsThePlanned) {
  for (const DType type : {DType::kF32, DType::kQ4_1, DType::kQ8_0}) {
    const Workplace place({.dtype = type, .layers = 4, .feed_forward = 1024});
    const std::string text = place.write("text.txt", long_text()).string();
    for (const int context : {64, 192, 512})
      for (const int rank : {4, 64}) {
        const Outcome run =
            place.run({"train-lm", "--model", place.path("model.gguf"), "--data", text, "--out", place.path("out"),
                       "--overwrite", "--steps", "2", "--rank", std::to_string(rank), "--context",
                       std::to_string(context), "--batch-tokens", std::to_string(context), "--jsonl"});
        ASSERT_EQ(run.status, 0) << run.err;
        const json memory = event_named(run, "memory");
        const double plan = memory.at("planned").get<double>() - memory.at("weights").get<double>();
        const double taken = event_named(run, "step").at("anonymousBytes").get<double>();
        const double allowed = std::max(0.03 * plan, 1e6);
        EXPECT_TRUE(std::abs(taken - plan) <= allowed)
            << "context " << context << ", rank " << rank << ": planned " << plan << ", taken " << taken;
        if (context == 512) {
          EXPECT_GT(plan, 40e6) << "the plan must matter beside the program";
        }
      }
  }
}

TEST(Profile, IsPrintedAndKept) {
  const Workplace place;
  const Outcome run = place.train("out", {"--profile", "--jsonl"});
  ASSERT_EQ(run.status, 0) << run.err;
  json event = event_named(run, "profile");
  EXPECT_EQ(event.at("steps"), 3);
  EXPECT_GT(event.at("peakGflops").get<double>(), 0);
  double shares = 0, ms = 0;
  bool products = false;
  for (const json& op : event.at("ops")) {
    shares += op.at("share").get<double>();
    ms += op.at("msPerStep").get<double>();
    if (op.at("op") != "frozen_linear") continue;
    products = true;
    EXPECT_GT(op.at("gflops").get<double>(), 0);
    EXPECT_NEAR(op.at("peakShare").get<double>() * event.at("peakGflops").get<double>(), op.at("gflops").get<double>(),
                1e-6 * op.at("gflops").get<double>());
  }
  EXPECT_TRUE(products);
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_NEAR(3 * ms, event.at("ms").get<double>(), 1e-6 * event.at("ms").get<double>());
  for (const char* text : {"frozen_linear", "attention_grad", "optimizer", "of peak"})
    EXPECT_NE(run.err.find(text), std::string::npos) << text;
  event.erase("event");
  EXPECT_EQ(json::parse(read_file(place.path("out/train_log.json"))).at("profile"), event);

  const Outcome plain = place.train("plain");
  EXPECT_FALSE(json::parse(read_file(place.path("plain/train_log.json"))).contains("profile"));
  EXPECT_EQ(plain.err.find("of peak"), std::string::npos);
}

}  // namespace
}  // namespace patina::testing
