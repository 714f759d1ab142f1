// What an adapter answers while it is trained.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/event_schema.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A run of four steps that answers two prompts.
class Sampled : public ::testing::Test {
 protected:
  Sampled() {
    place_.write("prompts.jsonl", "{\"prompt\": \"Who keeps the light?\"}\n\n{\"prompt\": \"What <b>sails</b>?\"}\n");
  }
  std::vector<std::string> arguments(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = place_.train_arguments(out, {"--jsonl", "--save-every", "1"});
    set_flag(all, "--steps", "4");
    set_flag(all, "--lr", "0.02");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> sampling(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = arguments(
        out, {"--sample-prompts", place_.path("prompts.jsonl"), "--sample-every", "2", "--sample-tokens", "12"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<json> samples(const std::vector<json>& events) {
    std::vector<json> found;
    for (const json& event : events)
      if (event.at("event") == "sample") found.push_back(event);
    return found;
  }
  // What `patina generate` answers.
  std::vector<std::string> answers(const std::vector<std::string>& more) const {
    std::vector<std::string> line = {
        "generate",     "--model", place_.path("model.gguf"), "--prompts", place_.path("prompts.jsonl"),
        "--max-tokens", "12"};
    line.insert(line.end(), more.begin(), more.end());
    std::vector<std::string> texts;
    for (const json& answer : place_.run(line).json_lines()) texts.push_back(answer.at("text"));
    return texts;
  }

  const Workplace place_;
};

TEST_F(Sampled, TheBaseAndTheAdapterAnswerAsGenerateDoes) {
  for (const std::vector<std::string>& how : {std::vector<std::string>{"0"}, std::vector<std::string>{"1.5"}}) {
    const Outcome run = place_.run(sampling("out", {"--overwrite", "--sample-temperature", how[0]}));
    ASSERT_EQ(run.status, 0) << run.err;
    const std::vector<json> found = samples(run.json_lines());
    ASSERT_EQ(found.size(), 6u) << "two prompts, at steps 0, 2 and 4";
    const std::vector<std::string> base = answers({"--temperature", how[0]}),
                                   adapted = answers({"--temperature", how[0], "--adapter", place_.path("out")});
    ASSERT_EQ(base.size(), 2u);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].at("step"), 2 * (i / 2));
      EXPECT_EQ(found[i].at("number"), i % 2 + 1);
      EXPECT_EQ(found[i].at("base"), base[i % 2]);
      EXPECT_EQ(schema_fault(found[i]), "");
    }
    for (const size_t i : {0u, 1u}) {
      EXPECT_EQ(found[i].at("text"), base[i]) << "a fresh adapter changes nothing";
      EXPECT_EQ(found[4 + i].at("text"), adapted[i]);
    }
    EXPECT_TRUE(adapted != base) << "the run must change the answers for this to show anything";
  }
}

TEST_F(Sampled, TheyChangeNothingOfTheRun) {
  for (const std::string type : {"lora", "dora"}) {
    ASSERT_EQ(place_.run(arguments("plain", {"--overwrite", "--adapter-type", type})).status, 0);
    ASSERT_EQ(place_.run(sampling("sampled", {"--overwrite", "--adapter-type", type})).status, 0);
    EXPECT_TRUE(read_file(place_.path("plain/adapter_model.safetensors")) ==
                read_file(place_.path("sampled/adapter_model.safetensors")))
        << type;
  }
}

TEST_F(Sampled, AreThereOnceAfterARunThatWasCutOff) {
  ASSERT_EQ(place_.run(sampling("straight")).status, 0);
  ASSERT_EQ(place_.run(sampling("out", {"--keep", "9"})).status, 0);
  for (const int from : {1, 2, 3, 4}) {
    for (const auto& entry : fs::directory_iterator(place_.path("out/checkpoints")))
      if (entry.path().filename() > fmt::format("step-{:08}.safetensors", from)) fs::remove(entry.path());
    ASSERT_EQ(place_.run(sampling("out", {"--resume", "--keep", "9"})).status, 0);
    for (const char* file : {"events.jsonl", "train_log.json"}) {
      const auto told = [&](const std::string& out) {
        const std::string text = read_file(place_.path(out + "/" + file));
        if (std::string(file) == "train_log.json") return json::parse(text).at("samples");
        json all = json::array();
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
          if (json event = json::parse(line); event.at("event") == "sample") all.push_back(event);
        return all;
      };
      EXPECT_EQ(told("out").dump(), told("straight").dump()) << file << " from " << from;
    }
  }
}

TEST_F(Sampled, AreInTheLogThePageAndTensorBoard) {
  const Outcome run = place_.run(sampling("out"));
  EXPECT_NE(run.err.find("sample 2 after step 2: What <b>sails</b>?\n  base     "), std::string::npos) << run.err;
  const std::string page = read_file(place_.path("out/report.html"));
  EXPECT_NE(page.find("What &lt;b&gt;sails&lt;/b&gt;?"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_LT(page.find("<th>after step 4</th>"), page.find("<summary>after step 2</summary>"));
  EXPECT_NE(page.find("<summary>after step 0</summary>"), std::string::npos);
  const std::string board = read_file(place_.path("out/tensorboard/events.out.tfevents.patina"));
  for (const char* part : {"samples/1", "samples/2", "Base model\n\n    "})
    EXPECT_NE(board.find(part), std::string::npos) << part;
}

TEST_F(Sampled, TakeWhatThePlanSays) {
  const auto memory = [&](std::vector<std::string> line) {
    line.front() = "plan";
    line.insert(line.begin() + 1, "train-lm");
    for (const json& event : place_.run(line).json_lines())
      if (event.at("event") == "memory") return event;
    return json();
  };
  const json without = memory(arguments("out")), with = memory(sampling("out"));
  EXPECT_FALSE(without.contains("samples"));
  // Two layers' keys and values of two heads of 16 for each token of the cache, at least.
  EXPECT_GT(with.at("samples").get<int64_t>(), 20000) << with;
  const auto sum = [](const json& event) {
    int64_t bytes = 0;
    for (const auto& [kind, value] : event.items())
      if (kind != "event" && kind != "planned" && kind != "budget") bytes += value.get<int64_t>();
    return bytes;
  };
  EXPECT_EQ(with.at("planned"), sum(with));
  EXPECT_EQ(without.at("planned"), sum(without));
}

TEST_F(Sampled, WorkWithStreamedWeights) {
  const Outcome mapped = place_.run(sampling("mapped")),
                streamed = place_.run(sampling("out", {"--weights", "stream"}));
  ASSERT_EQ(streamed.status, 0) << streamed.err;
  EXPECT_EQ(json(samples(mapped.json_lines())), json(samples(streamed.json_lines())));
}

TEST_F(Sampled, APromptThatCannotBeAnsweredIsRefusedBeforeTheRun) {
  place_.write("long.jsonl", fmt::format("{{\"prompt\": \"{}\"}}\n", std::string(5000, 'a')));
  place_.write("empty.jsonl", "\n");
  place_.write("wrong.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  for (const auto& [file, named] : {std::pair{"long.jsonl", "long.jsonl:1"}, std::pair{"empty.jsonl", "empty.jsonl"},
                                    std::pair{"wrong.jsonl", "wrong.jsonl:2"}, std::pair{"none.jsonl", "none.jsonl"}}) {
    const Outcome run = place_.run(arguments("out", {"--sample-prompts", place_.path(file)}));
    EXPECT_EQ(run.status, 1) << file << run.err;
    EXPECT_NE(run.err.find(named), std::string::npos) << run.err;
    EXPECT_FALSE(fs::exists(place_.path("out"))) << file;
  }
  EXPECT_EQ(place_.run(arguments("out", {"--sample-every", "2"})).status, 2);
}

}  // namespace
}  // namespace patina::testing
