#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "cli/event_schema.h"

namespace patina::testing {
namespace {

using nlohmann::json;

std::vector<json> events_named(const Outcome& outcome, const std::string& name) {
  std::vector<json> events;
  for (const json& event : outcome.json_lines())
    if (event.at("event") == name) events.push_back(event);
  return events;
}

std::string all_errors(const Outcome& outcome) {
  return fmt::format("status {}\n{}\n{}", outcome.status, outcome.out, outcome.err);
}

class EveryType : public ::testing::TestWithParam<DType> {};

TEST_P(EveryType, FieldIssue01_TenStepsLearnAndExportAndLeaveTheModelAlone) {
  const Workplace place({.dtype = GetParam()});
  const std::string model_before = read_file(place.path("model.gguf"));
  std::vector<std::string> arguments = place.train_arguments("out", {"--jsonl"});
  *(std::find(arguments.begin(), arguments.end(), "--steps") + 1) = "10";
  const Outcome run = place.run(arguments);
  ASSERT_EQ(run.status, 0) << all_errors(run);

  const std::vector<json> steps = events_named(run, "step");
  ASSERT_EQ(steps.size(), 10u);
  for (const json& step : steps) EXPECT_TRUE(std::isfinite(step.at("loss").get<double>()));
  const double first = steps.front().at("loss"), last = steps.back().at("loss");
  EXPECT_LT(last, first - 0.5) << "steps that hold the same samples must learn them";
  EXPECT_EQ(read_file(place.path("model.gguf")), model_before);

  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    const Outcome answer =
        place.run({"generate", "--model", place.path("model.gguf"), "--adapter",
                   place.path(i == 0 ? "out" : "out/adapter.gguf"), "--prompt", "What sails?", "--max-tokens", "8"});
    ASSERT_EQ(answer.status, 0) << all_errors(answer);
    texts[i] = answer.out;
  }
  EXPECT_EQ(texts[0], texts[1]) << "both files of one adapter";
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1,
                                           DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                           DType::kMXFP4),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST(TrainLm, EventsHaveTheirFieldsAndOrder) {
  const Workplace place;
  const Outcome run = place.train("out", {"--jsonl"});
  ASSERT_EQ(run.status, 0) << all_errors(run);
  std::string order;
  for (const json& event : run.json_lines()) {
    EXPECT_EQ(schema_fault(event), "");
    order += event.at("event").get<std::string>() + " ";
  }
  EXPECT_EQ(order, "start model data memory step epoch step epoch step epoch checkpoint export export done ");
  const json start = events_named(run, "start").at(0), memory = events_named(run, "memory").at(0);
  // Two layers of seven products, but nothing below the first layer's q, k and v learns: no gradient flows there.
  EXPECT_EQ(start.at("bwd").at("fused"), 11);
  EXPECT_EQ(memory.at("weights"), std::filesystem::file_size(place.path("model.gguf")));
  int64_t sum = 0;
  for (const char* part : {"weights", "trainables", "moments", "saved", "scratch", "data", "process"}) {
    EXPECT_GT(memory.at(part).get<int64_t>(), 0) << part;
    sum += memory.at(part).get<int64_t>();
  }
  EXPECT_EQ(memory.at("planned"), sum);
}

TEST(TrainLm, StreamedWeightsGiveTheSameAdapterAndCountAsWhatIsResident) {
  const Workplace place({.layers = 6});
  ASSERT_EQ(place.train("mapped", {"--weights", "mapped"}).status, 0);
  const Outcome run = place.train("stream", {"--weights", "stream", "--jsonl"});
  ASSERT_EQ(run.status, 0) << all_errors(run);
  for (const char* file : {"adapter_model.safetensors", "adapter.gguf"})
    EXPECT_EQ(read_file(place.path(std::string("stream/") + file)),
              read_file(place.path(std::string("mapped/") + file)));
  const json memory = events_named(run, "memory").at(0);
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(place.path("model.gguf")));
  EXPECT_LT(memory.at("weights").get<int64_t>(), file_bytes);
  EXPECT_EQ(events_named(run, "start").at(0).at("weights"), "stream");
  EXPECT_EQ(events_named(run, "model").at(0).at("bytes"), file_bytes);

  const Outcome wrong = place.train("wrong", {"--weights", "loaded"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--weights"), std::string::npos) << wrong.err;
}

#if !PATINA_SANITIZED  // a sanitizer keeps what is freed
TEST(TrainLm, MemoryChoosesStreamedWeights) {
  const Workplace place({.layers = 6});
  const auto train = [&](const char* out, std::vector<std::string> more) {
    more.insert(more.end(), {"--recompute", "layer", "--micro-tokens", "512", "--jsonl"});
    return place.train(out, more);
  };
  const Outcome mapped = train("mapped", {"--weights", "mapped"});
  const int64_t planned = events_named(mapped, "memory").at(0).at("planned").get<int64_t>();
  constexpr int64_t kLess = 500000;  // more than what a process takes differs by from run to run
  const std::string memory = fmt::format("{}B", planned - kLess);
  const Outcome chosen = train("chosen", {"--memory", memory});
  ASSERT_EQ(chosen.status, 0) << all_errors(chosen);
  EXPECT_EQ(events_named(chosen, "start").at(0).at("weights"), "stream");
  EXPECT_LE(events_named(chosen, "memory").at(0).at("planned").get<int64_t>(), planned - kLess);
  EXPECT_NE(chosen.err.find("--weights stream"), std::string::npos) << chosen.err;
  EXPECT_EQ(read_file(place.path("chosen/adapter.gguf")), read_file(place.path("mapped/adapter.gguf")));
  const Outcome refused = train("refused", {"--memory", memory, "--weights", "mapped"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(all_errors(refused).find("--weights at auto"), std::string::npos) << all_errors(refused);
}
#endif

TEST(TrainLm, LogTellsTheRun) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  const json log = json::parse(read_file(place.path("out/train_log.json")));
  EXPECT_EQ(log.at("start").at("rank"), 4);
  EXPECT_EQ(log.at("done").at("reason"), "completed");
  EXPECT_EQ(log.at("data").at("fingerprint").get<std::string>().size(), 64u);
  ASSERT_EQ(log.at("epochs").size(), 3u);
  const json norms = log.at("epochs").back().at("gradNorms");
  EXPECT_EQ(norms.size(), 2u * 14u);
  for (const auto& [parameter, norm] : norms.items()) EXPECT_GT(norm.get<double>(), 0.0) << parameter;
}

TEST(TrainLm, AdapterLowersTheLossThatEvalMeasures) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  const auto loss = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "eval", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl"), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = place.run(arguments);
    EXPECT_EQ(outcome.status, 0) << all_errors(outcome);
    return json::parse(outcome.out).at("loss").get<double>();
  };
  const double base = loss({}), adapted = loss({"--adapter", place.path("out")});
  EXPECT_LT(adapted, base - 0.1);
  EXPECT_EQ(loss({"--adapter", place.path("out/adapter.gguf")}), adapted);
}

TEST(TrainLm, SameFlagsInAFileGiveTheSameBytes) {
  const Workplace place;
  ASSERT_EQ(place.train("flags", {"--seed", "7", "--sites", "q,v"}).status, 0);
  place.write(
      "run.ini",
      fmt::format(
          "model = \"{}\"\ndata = \"{}\"\nsteps = 3\nrank = 4\nschedule = constant\nwarmup = 0\nlr = 2e-3\nseed = 7\n"
          "sites = \"q,v\"\n",
          place.path("model.gguf"), place.path("data.jsonl")));
  const Outcome run = place.run({"train-lm", "--config", place.path("run.ini"), "--out", place.path("file")});
  ASSERT_EQ(run.status, 0) << all_errors(run);
  EXPECT_EQ(read_file(place.path("file/adapter_model.safetensors")),
            read_file(place.path("flags/adapter_model.safetensors")));
  ASSERT_EQ(place.train("other", {"--seed", "8", "--sites", "q,v"}).status, 0);
  EXPECT_NE(read_file(place.path("file/adapter_model.safetensors")),
            read_file(place.path("other/adapter_model.safetensors")));

  place.write("wrong.ini", "batch-token = 1\n");
  const Outcome wrong = place.train("out", {"--config", place.path("wrong.ini")});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("batch-token"), std::string::npos) << wrong.err;
}

TEST(TrainLm, FieldIssue25_ThreadsDoNotChangeWhatIsLearned) {
  const Workplace place;
  ASSERT_EQ(place.train("one", {"--threads", "1"}).status, 0);
  ASSERT_EQ(place.train("three", {"--threads", "3"}).status, 0);
  EXPECT_EQ(read_file(place.path("one/adapter.gguf")), read_file(place.path("three/adapter.gguf")));
}

TEST(TrainLm, OutputOfAnEarlierRunIsKept) {
  const Workplace place;
  std::filesystem::create_directory(place.path("out"));
  place.write("out/notes.txt", "mine");
  const Outcome refused = place.train("out");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(place.path("out/adapter.gguf")));
  EXPECT_EQ(place.train("out", {"--overwrite"}).status, 0);
  EXPECT_EQ(read_file(place.path("out/notes.txt")), "mine");
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(place.path("out"))) ++files;
  EXPECT_EQ(files, 9) << "four files, checkpoints, events, tensorboard, the report and the notes, nothing temporary";
}

TEST(TrainLm, WhatAKilledRunLeftIsInNobodysWay) {
  const Workplace place;
  const std::string left = "out/.patina-999999999";  // above the largest process id of Linux
  std::filesystem::create_directories(place.path(left));
  place.write(left + "/adapter.gguf", "half");
  const Outcome run = place.train("out");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(std::filesystem::exists(place.path(left)));
}

TEST(TrainLm, ADirectoryInThePlaceOfAFileIsRefusedBeforeTheRun) {
  const Workplace place;
  std::filesystem::create_directories(place.path("out/adapter.gguf"));
  const Outcome run = place.train("out", {"--overwrite"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("adapter.gguf"), std::string::npos) << run.err;
  EXPECT_EQ(run.error_lines(), 1u) << run.err;
}

TEST(TrainLm, TheHintFitsTheData) {
  const Workplace place;
  EXPECT_EQ(place.train("chat").err.find("--raw"), std::string::npos);
  place.write("data.jsonl", "{\"text\": \"The otter sails at noon.\"}\n");
  const Outcome run = place.train("text", {"--micro-tokens", "4"});
  EXPECT_NE(run.err.find("--raw"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("--micro-tokens 4 was raised"), std::string::npos) << run.err;
}

// Its trainables would take 214 GB.
TEST(TrainLm, ARankThatTheMachineCannotHoldIsRefused) {
  if (sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) > int64_t{200} << 30)
    GTEST_SKIP() << "this machine could hold it";
  const Workplace place({.layers = 256, .width = 64, .feed_forward = 64});
  std::vector<std::string> arguments = place.train_arguments("out");
  *(std::find(arguments.begin(), arguments.end(), "--rank") + 1) = "65536";
  const Outcome run = place.run(arguments);
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("--rank 65536"), std::string::npos) << run.err;
}

TEST(TrainLm, UnwritableOutputIsRefusedBeforeAnyStep) {
  const Workplace place;
  const Outcome run = place.train("data.jsonl/out", {"--jsonl"});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.json_lines().size(), 1u);
  EXPECT_EQ(events_named(run, "fatal").at(0).at("reason"), "io");
  EXPECT_NE(run.err.find("--out"), std::string::npos) << run.err;
}

TEST(TrainLm, FieldIssue07_MalformedLineIsNamed) {
  const Workplace place;
  place.write("data.jsonl", "{\"text\": \"a good line\"}\n{\"text\": broken}\n");
  const Outcome run = place.train("out", {"--jsonl"});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.error_lines(), 1u) << run.err;
  EXPECT_NE(run.err.find("data.jsonl:2"), std::string::npos) << run.err;
  ASSERT_EQ(run.json_lines().size(), 1u) << "only fatal";
  EXPECT_EQ(events_named(run, "fatal").at(0).at("reason"), "data");
  EXPECT_FALSE(std::filesystem::exists(place.path("out")));
  std::filesystem::create_directory(place.path("out"));
  EXPECT_EQ(place.train("out").status, 1);
  EXPECT_TRUE(std::filesystem::is_empty(place.path("out"))) << "a directory that was there stays, empty";
}

TEST(TrainLm, WrongFlagsAreRefusedByName) {
  const Workplace place;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--ranks", "4"}, "--ranks"},
      {{"--alpha", "no"}, "--alpha"},
      {{"--sites", "q,banana"}, "banana"},
      {{"--sites", "lm_head"}, "lm_head"},
      {{"--batch-tokens", "100", "--context", "200"}, "--batch-tokens"},
      {{"--context", "100000"}, "--context"},
      {{"--context", "1"}, "--context 1: expected auto or a number of tokens, at least 2"},
      {{"--context", "auto", "--batch-tokens", "3"}, "--batch-tokens 3 is less than --context"},
      {{"--micro-tokens", "many"}, "--micro-tokens"},
      {{"--schedule", "step"}, "--schedule"},
      {{"--loss-on", "nothing"}, "nothing"},
      {{"--layers", "9"}, "9"},
      {{"--lr", "nan"}, "--lr: expected a number above 0, found nan"},
      {{"--alpha", "inf"}, "--alpha: expected a number above 0, found inf"},
      {{"--weight-decay", "-1"}, "--weight-decay: expected a number, 0 or more, found -1"},
      {{"--grad-clip", "nan"}, "--grad-clip"},
      {{"--warmup", "nan"}, "--warmup"},
      {{"--seed", "-1"}, "--seed: expected a whole number"},
      {{"--seed", "18446744073709551616"}, "--seed"},
      {{"--threads", "1000000"}, "--threads"},
      {{"--epochs", "2"}, "--steps"}};
  for (const auto& [more, named] : cases) {
    const Outcome run = place.train("out", more);
    EXPECT_EQ(run.status, 2) << more[0] << run.err;
    EXPECT_NE(run.err.find(named), std::string::npos) << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_FALSE(std::filesystem::exists(place.path("out")));
  }
}

TEST(TrainLm, ContextAutoIsTheLongestSample) {
  const Workplace place;
  const Outcome run = place.train("auto", {"--context", "auto", "--jsonl"});
  ASSERT_EQ(run.status, 0) << run.err;
  const int64_t longest = events_named(run, "start").at(0).at("context");
  EXPECT_EQ(events_named(run, "data").at(0).at("truncated"), 0);
  EXPECT_LT(longest, 512);
  const Outcome less = place.train("less", {"--context", std::to_string(longest - 1), "--jsonl"});
  EXPECT_GT(events_named(less, "data").at(0).at("truncated"), 0);
  place.write("plain.txt", std::string(3000, 'x'));
  const Outcome text = place.run({"train-lm", "--model", place.path("model.gguf"), "--data", place.path("plain.txt"),
                                  "--out", place.path("text"), "--steps", "1", "--context", "auto", "--jsonl"});
  EXPECT_EQ(events_named(text, "start").at(0).at("context"), 512) << text.err;
}

TEST(TrainLm, UnknownArchitectureIsRefusedByName) {
  const Workplace place({.architecture = "gizmo"});
  const Outcome run = place.train("out");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("gizmo"), std::string::npos) << run.err;
}

TEST(TrainLm, ShowMaskPrintsAndTrainsNothing) {
  const Workplace place;
  const Outcome run = place.run(
      {"train-lm", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl"), "--show-mask", "2"});
  EXPECT_EQ(run.status, 0) << all_errors(run);
  EXPECT_NE(run.out.find("+ \"Maren.<|im_end|>\""), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("sample 2"), std::string::npos);
  EXPECT_EQ(run.out.find("sample 3"), std::string::npos);
}

// The padding token of the tiny model is its end marker.
TEST(TrainLm, FieldIssue10_OneSampleIsLearnedUpToItsEndMarker) {
  const Workplace place;
  place.write("data.jsonl",
              R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Otto"}]})");
  ASSERT_EQ(place
                .run({"train-lm", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl"), "--out",
                      place.path("out"), "--steps", "40", "--lr", "2e-3"})
                .status,
            0);
  const Outcome answer = place.run({"generate", "--model", place.path("model.gguf"), "--adapter", place.path("out"),
                                    "--prompt", "Who?", "--max-tokens", "32"});
  EXPECT_EQ(answer.out, "Otto\n") << all_errors(answer);
}

class Interrupted : public ::testing::TestWithParam<int> {};

TEST_P(Interrupted, RunEndsAfterTheStepAndExports) {
  const Workplace place;
  std::vector<std::string> arguments = place.train_arguments("out", {"--jsonl"});
  *(std::find(arguments.begin(), arguments.end(), "--steps") + 1) = "2000";
  const Process process = place.start(arguments);
  while (process.out_so_far().find("\"event\":\"step\"") == std::string::npos) {
    ASSERT_EQ(waitpid(process.id(), nullptr, WNOHANG), 0) << "it ended by itself: " << process.out_so_far();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(process.id(), GetParam());
  const Outcome run = process.wait();
  EXPECT_EQ(run.status, 128 + GetParam()) << run.err;
  EXPECT_EQ(run.json_lines().back().at("event"), "done");
  EXPECT_EQ(run.json_lines().back().at("reason"), "interrupted");
  EXPECT_EQ(run.json_lines().back().at("steps"), events_named(run, "step").size());
  EXPECT_EQ(place.run({"inspect", place.path("out")}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(place.path("out/adapter.gguf")));
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace patina::testing
