// Flags on the command line and in files.
#include <gtest/gtest.h>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

TEST(Config, AMistakeInAFileNamesTheFile) {
  const Workplace place;
  for (const char* text : {"batch-token = 1\n", "rank = many\n", "rank = 0\n", "lr = nan\n"}) {
    place.write("run.ini", text);
    const Outcome run = place.run({"train-lm", "--model", place.path("model.gguf"), "--data", place.path("data.jsonl"),
                                   "--out", place.path("out"), "--config", place.path("run.ini")});
    EXPECT_EQ(run.status, 2) << text;
    EXPECT_TRUE(run.err.starts_with("patina: " + place.path("run.ini") + ": ")) << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
  }
  place.write("run.ini", "sites = q\n");
  const Outcome line = place.train("out", {"--config", place.path("run.ini"), "--layers", "many"});
  EXPECT_EQ(line.status, 2);
  EXPECT_EQ(line.err.find("run.ini"), std::string::npos) << "the line is wrong, not the file: " << line.err;
}

TEST(Config, AListNeedsNoQuotes) {
  const Workplace place;
  for (const char* text : {"sites = q,v\n", "sites = q, v\n", "sites = \"q,v\"\n"}) {
    place.write("run.ini", text);
    const Outcome run = place.train("out", {"--overwrite", "--jsonl", "--config", place.path("run.ini")});
    ASSERT_EQ(run.status, 0) << text << run.err;
    EXPECT_EQ(run.json_lines().at(0).at("sites"), nlohmann::json({"q", "v"})) << text;
  }
}

TEST(Config, AnOptionGivenTwiceIsNamed) {
  const Workplace place;
  const Outcome run = place.train("out", {"--layers", "1", "--layers=2"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("--layers was given twice"), std::string::npos) << run.err;
}

TEST(Config, TheChatTemplateIsCheckedWhateverTheDataIs) {
  const Workplace place;
  place.write("text.txt", "The otter sails at noon.");
  const Outcome run = place.run(
      {"eval", "--model", place.path("model.gguf"), "--data", place.path("text.txt"), "--chat-template", "chatlm"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("chatlm"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace patina::testing
