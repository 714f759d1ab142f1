// What a run shows of itself while it goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/event_schema.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Watch, EveryEventIsAsTheSchemaSays) {
  const Workplace place;
  const Outcome run =
      place.train("out", {"--jsonl", "--val", "0.25", "--eval-every", "2", "--save-every", "1", "--profile"});
  ASSERT_EQ(run.status, 0) << run.err;
  std::map<std::string, int> seen;
  for (const json& event : run.json_lines()) {
    EXPECT_EQ(schema_fault(event), "");
    ++seen[event.at("event")];
  }
  EXPECT_EQ(seen["eval"], 2) << "step 2 and the last";
  EXPECT_EQ(seen["checkpoint"], 3);
  EXPECT_EQ(seen["profile"], 1);
  const Outcome again = place.train("out", {"--jsonl", "--val", "0.25", "--eval-every", "2", "--resume"});
  ASSERT_EQ(again.status, 0) << again.err;
  for (const json& event : again.json_lines()) EXPECT_EQ(schema_fault(event), "");
  const Outcome wrong = place.train("out", {"--jsonl"});
  EXPECT_EQ(schema_fault(wrong.json_lines().at(0)), "");

  json event = run.json_lines().at(0);
  event["rank"] = "four";
  EXPECT_NE(schema_fault(event), "");
  event.erase("rank");
  EXPECT_NE(schema_fault(event), "");
}

TEST(Watch, TheFileOfEventsIsWhatJsonlPrints) {
  const Workplace place;
  const Outcome run = place.train("out", {"--jsonl"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_file(place.path("out/events.jsonl")), run.out);
}

TEST(Watch, ThePageShowsTheRunAndNeedsNothingElse) {
  const Workplace place;
  ASSERT_EQ(place.train("out", {"--val", "0.25", "--profile"}).status, 0);
  const std::string page = read_file(place.path("out/report.html"));
  for (const char* title : {"Loss", "Learning rate", "Gradient norm", "Tokens a second", "Gradient norm by site"})
    EXPECT_NE(page.find(fmt::format(">{}", title)), std::string::npos) << title;
  EXPECT_EQ(occurrences(page, "<svg"), 5u);
  EXPECT_EQ(occurrences(page, "</svg>"), 5u);
  EXPECT_EQ(occurrences(page, "<polyline"), 2u + 1 + 1 + 1 + 7);
  for (const char* wrong : {",nan", "nan,", "inf,", ",inf"}) EXPECT_EQ(page.find(wrong), std::string::npos) << wrong;
  for (const char* foreign : {"<script", "http:", "https:", "src=", "@import", "http-equiv=\"refresh\""})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  EXPECT_NE(page.find("Where the time went"), std::string::npos);
  EXPECT_NE(page.find("completed after"), std::string::npos);
}

TEST(Watch, ValidationHoldsSamplesOutAndItsBestIsExported) {
  const Workplace place;
  std::vector<std::string> arguments = place.train_arguments(
      "last", {"--val", "0.25", "--eval-every", "1", "--jsonl", "--save-every", "end", "--keep", "1"});
  set_flag(arguments, "--lr", "0.3");  // the first step is good, the rest only harms
  set_flag(arguments, "--steps", "6");
  const Outcome last = place.run(arguments);
  ASSERT_EQ(last.status, 0) << last.err;
  int64_t best = 0;
  for (const json& event : last.json_lines()) {
    if (event.at("event") == "data") {
      EXPECT_EQ(event.at("validation"), 1);
    }
    if (event.at("event") == "eval" && event.at("best").get<bool>()) best = event.at("step");
  }
  ASSERT_GT(best, 0);
  ASSERT_LT(best, 6);
  EXPECT_TRUE(fs::exists(place.path(fmt::format("last/checkpoints/step-{:08}.safetensors", best))));

  // The adapter of the best step is that of a run which ends there.
  std::vector<std::string> shorter = arguments;
  set_flag(shorter, "--steps", std::to_string(best));
  set_flag(shorter, "--out", place.path("short"));
  ASSERT_EQ(place.run(shorter).status, 0);
  set_flag(arguments, "--out", place.path("best"));
  arguments.push_back("--export-best");
  ASSERT_EQ(place.run(arguments).status, 0);
  EXPECT_TRUE(read_file(place.path("best/adapter_model.safetensors")) ==
              read_file(place.path("short/adapter_model.safetensors")));
  EXPECT_FALSE(read_file(place.path("best/adapter_model.safetensors")) ==
               read_file(place.path("last/adapter_model.safetensors")));
}

TEST(Watch, AnOptimizerThatCannotHelpSaysSo) {
  const Workplace place;
  const Outcome four = place.train("four", {"--optimizer", "muon"});
  EXPECT_NE(four.err.find("warning: --optimizer muon"), std::string::npos) << four.err;
  std::vector<std::string> arguments = place.train_arguments("sixteen", {"--optimizer", "muon"});
  set_flag(arguments, "--rank", "16");
  const Outcome sixteen = place.run(arguments);
  EXPECT_EQ(sixteen.status, 0);
  EXPECT_EQ(sixteen.err.find("warning: --optimizer muon"), std::string::npos) << sixteen.err;
}

TEST(Watch, ControlsAreRefusedWhereTheyMeanNothing) {
  const Workplace place;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {{{"--val", "1.5"}, "--val"},
                                                                               {{"--patience", "2"}, "--val"},
                                                                               {{"--export-best"}, "--val"},
                                                                               {{"--save-every", "0"}, "--save-every"},
                                                                               {{"--save-every", "5h"}, "--save-every"},
                                                                               {{"--keep", "0"}, "--keep"},
                                                                               {{"--optimizer", "sgd"}, "--optimizer"},
                                                                               {{"--muon-scale", "9"}, "--muon-scale"},
                                                                               {{"--val", "0.9"}, "0.9"}};
  for (const auto& [more, named] : cases) {
    const Outcome run = place.train("out", more);
    EXPECT_EQ(run.status, 2) << more[0] << run.err;
    EXPECT_NE(run.err.find(named), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace patina::testing
