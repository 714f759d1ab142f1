// The options that say what adapter is trained.
#include <gtest/gtest.h>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

// Of a run without --rank, which not every kind has.
Outcome train(const Workplace& place, std::vector<std::string> more) {
  std::vector<std::string> arguments = place.train_arguments("out", {"--jsonl", "--overwrite"});
  const auto rank = std::find(arguments.begin(), arguments.end(), "--rank");
  arguments.erase(rank, rank + 2);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return place.run(arguments);
}

json event(const Outcome& run, const std::string& name) {
  for (const json& one : run.json_lines())
    if (one.at("event") == name) return one;
  ADD_FAILURE() << "no event " << name << "\n" << run.err;
  return {};
}

TEST(AdapterFlags, EveryKindLearnsAndSaysWhatItIs) {
  const Workplace place({.dtype = DType::kQ8_0, .tied_head = false});
  const std::vector<std::vector<std::string>> kinds = {
      {"--adapter-type", "lora", "--rank", "4", "--rslora"},
      {"--adapter-type", "dora", "--rank", "4", "--dropout", "0.1"},
      {"--adapter-type", "lokr", "--lokr-dim", "4", "--lokr-factor", "4"},
      {"--adapter-type", "lokr", "--lokr-dim", "2", "--lokr-factor", "-1", "--lokr-decompose-both"},
      {"--adapter-type", "dora", "--sites", "all,lm_head", "--rank-pattern", "layers.*.q=2,lm_head=3"}};
  for (const std::vector<std::string>& flags : kinds) {
    const Outcome run = train(place, flags);
    ASSERT_EQ(run.status, 0) << run.err;
    const json start = event(run, "start");
    EXPECT_EQ(start.at("adapterType"), flags[1]);
    EXPECT_EQ(start.contains("lokr"), flags[1] == "lokr");
    double first = 0, last = 0;
    for (const json& one : run.json_lines())
      if (one.at("event") == "step") {
        last = one.at("loss");
        if (first == 0) first = last;
      }
    EXPECT_LT(last, first) << run.err;
    const json log = json::parse(read_file(place.path("out/train_log.json")));
    EXPECT_EQ(log.at("start").at("trainable"), start.at("trainable"));
  }
}

TEST(AdapterFlags, StartNamesTheOptions) {
  const Workplace place;
  json start =
      event(train(place, {"--rslora", "--rank-pattern", "q=2", "--alpha-pattern", "v=3", "--dropout", "0.5"}), "start");
  EXPECT_EQ(start.at("rank"), 16);
  EXPECT_EQ(start.at("rslora"), true);
  EXPECT_EQ(start.at("rankPattern"), "q=2");
  EXPECT_EQ(start.at("alphaPattern"), "v=3");
  EXPECT_EQ(start.at("dropout"), 0.5);
  start = event(train(place, {"--adapter-type", "lokr", "--lokr-dim", "8", "--lokr-factor", "2"}), "start");
  EXPECT_EQ(start.at("lokr"), json::parse(R"({"dim": 8, "alpha": 8, "factor": 2, "decomposeBoth": false})"));
}

TEST(AdapterFlags, WrongOnesAreRefusedByName) {
  const Workplace place;  // its head is tied
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--adapter-type", "loha"}, "--adapter-type"},
      {{"--adapter-type", "lokr", "--rank", "4"}, "--rank is no option of --adapter-type lokr"},
      {{"--adapter-type", "lokr", "--rslora"}, "--rslora"},
      {{"--lokr-dim", "4"}, "--lokr-dim is no option of --adapter-type lora"},
      {{"--adapter-type", "dora", "--lokr-decompose-both"}, "--lokr-decompose-both"},
      {{"--adapter-type", "lokr", "--lokr-factor", "-2"}, "--lokr-factor"},
      {{"--adapter-type", "lokr", "--lokr-factor", "0"}, "factor 0"},
      {{"--rank-pattern", "q"}, "--rank-pattern \"q\""},
      {{"--rank-pattern", "layers.7.*=4"}, "--rank-pattern: the pattern \"layers.7.*\" matches none"},
      {{"--alpha-pattern", "q=0"}, "--alpha-pattern \"q=0\""},
      {{"--dropout", "1"}, "--dropout"},
      {{"--sites", "all,lm_head"}, "it shares its weight with the embedding"}};
  for (const auto& [more, named] : cases) {
    const Outcome run = train(place, more);
    EXPECT_EQ(run.status, 2) << named << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find(named), std::string::npos) << named << " is not in: " << run.err;
  }
}

}  // namespace
}  // namespace patina::testing
