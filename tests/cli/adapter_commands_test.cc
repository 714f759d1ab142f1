// export, merge, convert and train-lm --init-adapter, as a user runs them.
#include <gtest/gtest.h>

#include "cli/run_patina.h"

namespace patina {
namespace {

using namespace patina::testing;
namespace fs = std::filesystem;
using nlohmann::json;

class AdapterCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome trained = place_.train("run", {"--sites", "q,down", "--trigger", "tide"});
    ASSERT_EQ(trained.status, 0) << trained.err;
  }
  Outcome model_run(const std::string& command, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {command, "--model", place_.path("model.gguf")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place_.run(arguments);
  }
  double loss(const std::string& adapter, const std::string& model = "model.gguf") const {
    std::vector<std::string> arguments = {"eval",  "--model", place_.path(model), "--data", place_.path("data.jsonl"),
                                          "--json"};
    if (!adapter.empty()) arguments.insert(arguments.end(), {"--adapter", place_.path(adapter)});
    const Outcome outcome = place_.run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out)["loss"];
  }
  json inspect(const std::string& path) const {
    const Outcome outcome = place_.run({"inspect", "--json", place_.path(path)});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  void expect_refused(const Outcome& outcome, int status, const std::vector<std::string>& parts) const {
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    for (const std::string& part : parts)
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << ": " << outcome.err;
  }

  const Workplace place_;
};

TEST_F(AdapterCommands, ExportInEveryFormatIsTheSameAdapter) {
  const double expected = loss("run");
  ASSERT_NE(expected, loss(""));
  for (const auto& [format, name] : {std::pair{"peft", "p"}, {"gguf", "x.gguf"}, {"lycoris", "x.safetensors"}}) {
    const Outcome outcome =
        model_run("export", {"--adapter", place_.path("run"), "--format", format, "--out", place_.path(name)});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(loss(name), expected) << format;
    const json facts = inspect(name);
    EXPECT_EQ(facts["format"], format);
    EXPECT_EQ(facts["adapterType"], "lora");
    EXPECT_EQ(facts["patina.trigger"], "tide");
    EXPECT_EQ(facts["patina.trigger_position"], "prepend");
    EXPECT_EQ(facts["pairs"], 4);
    EXPECT_EQ(facts["baseModel"], "model");
    expect_refused(
        model_run("export", {"--adapter", place_.path("run"), "--format", format, "--out", place_.path(name)}), 2,
        {"--overwrite"});
  }
  ASSERT_EQ(model_run("export", {"--adapter", place_.path("x.gguf"), "--format", "lycoris", "--type", "bf16", "--out",
                                 place_.path("b.safetensors")})
                .status,
            0);
  EXPECT_NEAR(loss("b.safetensors"), expected, 0.02);
}

// What a run of every kind writes is what it trained, in every format, at run time and merged.
TEST_F(AdapterCommands, EveryKind) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> kinds = {
      {"dora", {"--adapter-type", "dora", "--rank", "4"}},
      {"lokr", {"--adapter-type", "lokr", "--lokr-dim", "2", "--lokr-factor", "8"}},
      {"lokr", {"--adapter-type", "lokr", "--lokr-dim", "64", "--lokr-factor", "8"}}};
  for (const auto& [kind, flags] : kinds) {
    SCOPED_TRACE(kind + " " + flags[3]);
    std::vector<std::string> arguments = {"train-lm",
                                          "--model",
                                          place_.path("model.gguf"),
                                          "--data",
                                          place_.path("data.jsonl"),
                                          "--out",
                                          place_.path("k"),
                                          "--overwrite",
                                          "--steps",
                                          "3",
                                          "--lr",
                                          "2e-2",
                                          "--warmup",
                                          "0",
                                          "--sites",
                                          "q,down"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome trained = place_.run(arguments);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const double expected = loss("k");
    ASSERT_NE(expected, loss(""));
    EXPECT_EQ(inspect("k")["adapterType"], kind);
    const bool gguf = fs::exists(place_.path("k/adapter.gguf"));
    EXPECT_EQ(gguf, flags[3] == "2");
    if (gguf) {
      EXPECT_NEAR(loss("k/adapter.gguf"), expected, 1e-4);
    }
    ASSERT_EQ(model_run("export", {"--adapter", place_.path("k"), "--format", "lycoris", "--out",
                                   place_.path("k.safetensors"), "--overwrite"})
                  .status,
              0);
    EXPECT_EQ(loss("k.safetensors"), expected);
    ASSERT_EQ(model_run("merge", {"--adapter", place_.path("k"), "--out", place_.path("k.gguf"), "--overwrite"}).status,
              0);
    EXPECT_NEAR(loss("", "k.gguf"), expected, 1e-4);
  }
}

TEST_F(AdapterCommands, MergeIsTheAdapter) {
  const Outcome outcome = model_run("merge", {"--adapter", place_.path("run"), "--out", place_.path("m.gguf")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("blk.1.ffn_down.weight"), std::string::npos) << outcome.out;
  EXPECT_NEAR(loss("", "m.gguf"), loss("run"), 1e-4);
  // The adapter beside its own merged model is one beside another model.
  EXPECT_NE(place_
                .run({"eval", "--model", place_.path("m.gguf"), "--adapter", place_.path("run"), "--data",
                      place_.path("data.jsonl")})
                .err.find("another model file"),
            std::string::npos);
  const Outcome coarse =
      model_run("merge", {"--adapter", place_.path("run"), "--out", place_.path("c.gguf"), "--type", "q4_0"});
  ASSERT_EQ(coarse.status, 0) << coarse.err;
  EXPECT_NE(coarse.err.find("warning: 4 of 4"), std::string::npos) << coarse.err;
  expect_refused(model_run("merge", {"--adapter", place_.path("run"), "--out", place_.path("n.gguf"), "--weight", "0"}),
                 1, {"changes nothing"});
  for (const char* weight : {"1e300", "-1001", "nan", "inf"})
    expect_refused(
        model_run("merge", {"--adapter", place_.path("run"), "--out", place_.path("n.gguf"), "--weight", weight}), 2,
        {"--weight", "from -1000 to 1000", weight});
  expect_refused(
      model_run("merge", {"--adapter", place_.path("run"), "--out", place_.path("model.gguf"), "--overwrite"}), 2,
      {"is the model itself"});
  EXPECT_FALSE(fs::exists(place_.path("n.gguf")));
}

TEST_F(AdapterCommands, Convert) {
  ASSERT_EQ(model_run("convert", {"--out", place_.path("c.gguf"), "--type", "f16"}).status, 0);
  EXPECT_NEAR(loss("", "c.gguf"), loss(""), 1e-2);
  expect_refused(place_.run({"convert", "--model", place_.path("run/adapter.gguf"), "--out", place_.path("d.gguf"),
                             "--type", "f16"}),
                 2, {"is an adapter"});
  expect_refused(model_run("convert", {"--out", place_.path("d.gguf"), "--type", "q4_k"}), 2, {"q4_k"});
}

TEST_F(AdapterCommands, TrainingGoesOnFromAnAdapter) {
  // No learning: what comes out is what went in, with its trigger.
  const std::vector<std::string> again = {
      "train-lm", "--model", place_.path("model.gguf"), "--data",          place_.path("data.jsonl"), "--steps", "1",
      "--lr",     "1e-30",   "--init-adapter",          place_.path("run")};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), again.begin(), again.end());
    return place_.run(more);
  };
  const Outcome outcome = with({"--out", place_.path("again")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(loss("again"), loss("run"));
  EXPECT_EQ(inspect("again")["patina.trigger"], "tide");
  EXPECT_EQ(with({"--out", place_.path("agreeing"), "--rank", "4", "--sites", "attn_q,ffn_down"}).status, 0);
  for (const auto& [flag, value] : {std::pair{"--rank", "8"}, {"--alpha", "1"}, {"--sites", "q"}, {"--layers", "1"}})
    expect_refused(with({"--out", place_.path("x"), flag, value}), 2, {flag, "contradicts", "leave"});
  for (const auto& [flag, value] : {std::pair{"--rank-pattern", "q=2"}, {"--alpha-pattern", "q=2"}})
    expect_refused(with({"--out", place_.path("x"), flag, value}), 2, {flag, "--init-adapter", "leave"});
  expect_refused(with({"--out", place_.path("x"), "--lokr-dim", "4"}), 2, {"--lokr-dim", "--init-adapter", "is lora"});
  expect_refused(with({"--out", place_.path("x"), "--trigger-position", "append"}), 2, {"--trigger"});
  // Dropout is of the training, not of the adapter.
  const Outcome dropping = with({"--out", place_.path("dropping"), "--dropout", "0.25"});
  ASSERT_EQ(dropping.status, 0) << dropping.err;
  EXPECT_NE(dropping.err.find("lora, rank 4, alpha 32, dropout 0.25"), std::string::npos) << dropping.err;
  EXPECT_NE(json::parse(read_file(place_.path("dropping/train_log.json")))["done"]["finalLoss"],
            json::parse(read_file(place_.path("again/train_log.json")))["done"]["finalLoss"]);
}

// Header and start event say what the adapter is, not what the flags' defaults are.
TEST_F(AdapterCommands, ARunFromAnAdapterSaysWhatThatIs) {
  const auto train = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), {"train-lm", "--model", place_.path("model.gguf"), "--data", place_.path("data.jsonl"),
                               "--steps", "1", "--overwrite", "--out", place_.path(out)});
    const Outcome outcome = place_.run(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const size_t at = outcome.err.find("adapter   ");
    json start = json::parse(read_file(place_.path(out + "/train_log.json")))["start"];
    start.erase("out");
    return std::pair(start, outcome.err.substr(at, outcome.err.find('\n', at) - at));
  };
  const std::vector<std::vector<std::string>> kinds = {
      {"--rank", "4", "--alpha", "3", "--rank-pattern", "v=8,layers.1.q=2", "--alpha-pattern", "down=0.5"},
      {"--adapter-type", "dora", "--rank", "3", "--sites", "down", "--dropout", "0.5"},
      {"--adapter-type", "lokr", "--lokr-dim", "2", "--lokr-factor", "4", "--lokr-alpha", "3", "--layers", "1"},
      {"--adapter-type", "lokr", "--lokr-dim", "1", "--lokr-factor", "16", "--lokr-decompose-both"}};
  for (const std::vector<std::string>& kind : kinds) {
    const auto [fresh, header] = train("first", kind);
    std::vector<std::string> again = {"--init-adapter", place_.path("first")};
    if (kind.back() == "0.5" && kind[1] == "dora") again.insert(again.end(), {"--dropout", "0.5"});
    const auto [start, text] = train("second", again);
    EXPECT_EQ(start, fresh);
    EXPECT_EQ(text, header);
  }
}

}  // namespace
}  // namespace patina
