// Adapters that are exported while a run goes on, as its loss falls.
#include <gtest/gtest.h>

#include <set>

#include "cli/event_schema.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> arguments(const Workplace& place, const std::string& out,
                                   const std::vector<std::string>& more) {
  std::vector<std::string> all = place.train_arguments(out, {"--jsonl", "--save-every", "1"});
  set_flag(all, "--steps", "8");  // an epoch each
  set_flag(all, "--lr", "0.005");
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<json> events_named(const Outcome& run, const std::string& name) {
  std::vector<json> found;
  for (const json& event : run.json_lines())
    if (event.at("event") == name) found.push_back(event);
  return found;
}

std::set<std::string> directories(const Workplace& place, const std::string& out) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(place.path(out + "/milestones")))
    names.insert(entry.path().filename());
  return names;
}

TEST(Milestones, AreWrittenEachTimeTheLossHasFallenByTheStep) {
  const Workplace place;
  const Outcome run = place.run(arguments(place, "out", {"--milestone-step", "0.05", "--milestone-keep", "2"}));
  ASSERT_EQ(run.status, 0) << run.err;
  // What the rule says of the losses of the epochs.
  std::vector<json> expected;
  double last = 0.0;
  for (const json& epoch : events_named(run, "epoch")) {
    const double loss = epoch.at("loss");
    if (epoch.at("epoch") == 1 || loss <= last - 0.05) {
      last = loss;
      if (epoch.at("epoch") != 1) expected.push_back(epoch);
    }
  }
  ASSERT_GE(expected.size(), 3u) << run.err << "the run must fall for this to show anything";
  ASSERT_LT(expected.size(), 7u) << "and not by a milestone in every epoch";
  const std::vector<json> found = events_named(run, "milestone");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(schema_fault(found[i]), "");
    for (const char* field : {"loss", "epoch"}) EXPECT_EQ(found[i].at(field), expected[i].at(field));
  }
  std::set<std::string> kept;
  for (size_t i = found.size() - 2; i < found.size(); ++i)
    kept.insert(fs::path(found[i].at("path").get<std::string>()).filename());
  EXPECT_EQ(directories(place, "out"), kept);
  EXPECT_EQ(json::parse(read_file(place.path("out/train_log.json"))).at("milestones").size(), found.size());

  // A milestone is the adapter of a run that ends there.
  const json& latest = found.back();
  std::vector<std::string> shorter = arguments(place, "short", {});
  set_flag(shorter, "--steps", std::to_string(latest.at("step").get<int>()));
  ASSERT_EQ(place.run(shorter).status, 0);
  const std::string path = latest.at("path");
  EXPECT_TRUE(read_file(path + "/adapter_model.safetensors") ==
              read_file(place.path("short/adapter_model.safetensors")));
  EXPECT_EQ(place
                .run({"generate", "--model", place.path("model.gguf"), "--adapter", path, "--prompt", "Who?",
                      "--max-tokens", "2"})
                .status,
            0);
}

TEST(Milestones, AreThoseOfTheStraightRunAfterAResume) {
  const Workplace place;
  const std::vector<std::string> flags = {"--milestone-step", "0.05", "--keep", "9"};
  ASSERT_EQ(place.run(arguments(place, "straight", flags)).status, 0);
  ASSERT_EQ(place.run(arguments(place, "out", flags)).status, 0);
  for (const char* kept : {"step-00000002", "step-00000005"}) {
    for (const auto& entry : fs::directory_iterator(place.path("out/checkpoints")))
      if (entry.path().stem() > kept) fs::remove(entry.path());
    std::vector<std::string> resumed = arguments(place, "out", flags);
    resumed.push_back("--resume");
    ASSERT_EQ(place.run(resumed).status, 0);
    EXPECT_EQ(directories(place, "out"), directories(place, "straight"));
    const auto told = [&](const std::string& out) {
      json losses = json::array();
      const json log = json::parse(read_file(place.path(out + "/train_log.json")));
      for (const json& milestone : log.at("milestones")) losses.push_back(milestone.at("loss"));
      return losses;
    };
    EXPECT_EQ(told("out"), told("straight"));
  }
  // Another run in the directory forgets them, and by default there are none.
  ASSERT_EQ(place.run(arguments(place, "out", {"--overwrite"})).status, 0);
  EXPECT_FALSE(fs::exists(place.path("out/milestones")));
}

}  // namespace
}  // namespace patina::testing
