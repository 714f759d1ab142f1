#include <gtest/gtest.h>

#include <cmath>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

const char* const kCommands[] = {"inspect", "eval", "generate", "train-lm", "gemmbench", "self-test"};

TEST(Program, HelpAndVersion) {
  const Workplace place;
  EXPECT_EQ(place.run({"--version"}).out, "patina 0.1.0\n");
  const Outcome help = place.run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : kCommands) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    const Outcome own = place.run({command, "--help"});
    EXPECT_EQ(own.status, 0);
    EXPECT_NE(own.out.find("--config"), std::string::npos) << command;
    EXPECT_EQ(own.err, "");
  }
}

TEST(Program, HelpNamesDefaultsAndUnits) {
  const Workplace place;
  const std::string help = place.run({"train-lm", "--help"}).out;
  for (const char* text : {"--rank N=16", "--alpha NUMBER=32", "--context TOKENS=512", "--batch-tokens TOKENS=2048",
                           "--micro-tokens TOKENS=auto", "--sites LIST=all", "--grad-clip NUMBER=1",
                           "--schedule NAME=cosine", "--loss-on WHAT=assistant", "--seed N=42"})
    EXPECT_NE(help.find(text), std::string::npos) << text << "\n" << help;
}

TEST(Program, WrongUseExitsWithTwoAndOneLine) {
  const Workplace place;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"trian-lm"},
                                                    {"generate"},
                                                    {"generate", "--model", "m"},
                                                    {"inspect"},
                                                    {"inspect", "a", "b"},
                                                    {"eval", "--flag"},
                                                    {"--version", "x"}}) {
    const Outcome run = place.run(arguments);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_TRUE(run.err.starts_with("patina: ")) << run.err;
    EXPECT_NE(run.err.find("--help"), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

TEST(Program, MissingAndDamagedFilesExitWithOneAndOneLine) {
  const Workplace place;
  const std::string model = read_file(place.path("model.gguf"));
  place.write("cut.gguf", model.substr(0, model.size() / 2));
  place.write("text.gguf", "this is no model");
  place.write("empty.gguf", "");
  for (const char* file : {"missing.gguf", "cut.gguf", "text.gguf", "empty.gguf"})
    for (const char* command : {"inspect", "generate"}) {
      std::vector<std::string> arguments = {command, place.path(file)};
      if (std::string(command) == "generate") arguments = {command, "--prompt", "x", "--model", place.path(file)};
      const Outcome run = place.run(arguments);
      EXPECT_EQ(run.status, 1) << run.err;
      EXPECT_EQ(run.error_lines(), 1u) << run.err;
      EXPECT_NE(run.err.find(file), std::string::npos) << run.err;
    }
}

TEST(Inspect, TellsAModel) {
  const Workplace place({.dtype = DType::kQ8_0});
  const Outcome run = place.run({"inspect", place.path("model.gguf"), "--json", "--tensors"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json model = json::parse(run.out);
  EXPECT_EQ(model.at("architecture"), "llama");
  EXPECT_EQ(model.at("layers"), 2);
  EXPECT_EQ(model.at("width"), 256);
  EXPECT_EQ(model.at("feedForward"), 512);
  EXPECT_EQ(model.at("heads"), 8);
  EXPECT_EQ(model.at("kvHeads"), 2);
  EXPECT_EQ(model.at("headWidth"), 32);
  EXPECT_EQ(model.at("vocab"), 260);
  EXPECT_EQ(model.at("tiedHead"), true);
  EXPECT_EQ(model.at("chatFormat"), "chatml");
  EXPECT_EQ(model.at("types").at("Q8_0").at("count"), 15);
  EXPECT_EQ(model.at("types").at("F32").at("count"), 5);
  EXPECT_EQ(model.at("tensors").size(), 20u);
  EXPECT_EQ(model.at("trainLm").at("supported"), true);
  EXPECT_EQ(model.at("fingerprint").get<std::string>().size(), 64u);
  EXPECT_NE(place.run({"inspect", place.path("model.gguf")}).out.find("width D"), std::string::npos);
}

TEST(Inspect, SaysWhyAModelCannotBeTrained) {
  const Workplace place({.architecture = "gizmo"});
  const Outcome run = place.run({"inspect", place.path("model.gguf"), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json model = json::parse(run.out);
  EXPECT_EQ(model.at("layers"), 2);
  EXPECT_EQ(model.at("trainLm").at("supported"), false);
  EXPECT_NE(model.at("trainLm").at("reason").get<std::string>().find("gizmo"), std::string::npos);
}

TEST(Inspect, TellsAdapters) {
  const Workplace place;
  ASSERT_EQ(place.train("out", {"--sites", "attn", "--layers", "1"}).status, 0);
  for (const char* file : {"out", "out/adapter.gguf", "out/adapter_model.safetensors"}) {
    const Outcome run = place.run({"inspect", place.path(file), "--json"});
    ASSERT_EQ(run.status, 0) << run.err;
    const json adapter = json::parse(run.out);
    EXPECT_EQ(adapter.at("rank"), json({4}));
    EXPECT_EQ(adapter.at("alpha"), json({32.0}));
    EXPECT_EQ(adapter.at("sites"), json({"q", "k", "v", "o"}));
    EXPECT_EQ(adapter.at("layers"), json({1}));
    EXPECT_EQ(adapter.at("parameters"), 4 * (512 + 320 + 320 + 512));
  }
  const auto checkpoint = std::filesystem::directory_iterator(place.path("out/checkpoints"))->path();
  const Outcome tensors = place.run({"inspect", checkpoint.string(), "--json"});
  ASSERT_EQ(tensors.status, 0) << tensors.err;
  EXPECT_GT(json::parse(tensors.out).at("tensors").size(), 2u);
}

TEST(Generate, FileOfPromptsGivesWhatSinglePromptsGive) {
  const Workplace place;
  place.write("prompts.jsonl",
              "{\"prompt\": \"Who keeps the light?\", \"key\": \"x\"}\n\n{\"prompt\": \"What sails?\"}\n");
  const std::vector<std::string> common = {"generate", "--model", place.path("model.gguf"), "--max-tokens", "12"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return place.run(more);
  };
  const Outcome many = run({"--prompts", place.path("prompts.jsonl"), "--raw"});
  ASSERT_EQ(many.status, 0) << many.err;
  const std::vector<json> lines = many.json_lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("prompt"), "What sails?");
  EXPECT_EQ(lines[1].at("ids").size(), 12u) << "a random model does not end so soon";
  const Outcome one = run({"--prompt", "What sails?", "--raw"});
  ASSERT_EQ(one.status, 0) << one.err;
  const json text = json::parse(json(one.out).dump(-1, ' ', false, json::error_handler_t::replace));
  EXPECT_EQ(text, lines[1].at("text").get<std::string>() + "\n");
  EXPECT_NE(one.err.find("tokens/s"), std::string::npos);
  EXPECT_NE(run({"--prompt", "What sails?"}).out, one.out) << "the chat format makes another prompt";
}

TEST(Generate, SeedDecidesSampledText) {
  const Workplace place;
  const auto sample = [&](const char* seed) {
    return place
        .run({"generate", "--model", place.path("model.gguf"), "--prompt", "a", "--temperature", "1", "--top-p", "0.9",
              "--seed", seed, "--max-tokens", "16"})
        .out;
  };
  EXPECT_EQ(sample("1"), sample("1"));
  EXPECT_NE(sample("1"), sample("2"));
}

TEST(Generate, NumbersOutOfRangeAreRefused) {
  const Workplace place;
  for (const auto& [flag, value] : {std::pair{"--temperature", "nan"},
                                    {"--temperature", "-1"},
                                    {"--top-p", "nan"},
                                    {"--top-p", "0"},
                                    {"--top-p", "1.5"},
                                    {"--seed", "-1"}}) {
    const Outcome run = place.run({"generate", "--model", place.path("model.gguf"), "--prompt", "x", flag, value});
    EXPECT_EQ(run.status, 2) << flag << " " << value;
    EXPECT_NE(run.err.find(fmt::format("{}: expected", flag)), std::string::npos) << run.err;
  }
}

TEST(Generate, RefusesWhatDoesNotFit) {
  const Workplace place;
  const Outcome longer = place.run(
      {"generate", "--model", place.path("model.gguf"), "--prompt", std::string(100, 'x'), "--context", "50"});
  EXPECT_EQ(longer.status, 2);
  EXPECT_NE(longer.err.find("--context"), std::string::npos) << longer.err;
  place.write("prompts.jsonl", "{\"prompt\": \"x\"}\n\n{\"prompt\": \"" + std::string(100, 'x') + "\"}\n");
  const Outcome of_file = place.run({"generate", "--model", place.path("model.gguf"), "--raw", "--prompts",
                                     place.path("prompts.jsonl"), "--context", "50"});
  EXPECT_EQ(of_file.status, 1);
  EXPECT_NE(of_file.err.find("prompts.jsonl:3: "), std::string::npos) << of_file.err;
  EXPECT_EQ(of_file.out, "") << "refused before any answer";
  const Workplace plain({.chat_template = false});
  const Outcome system = plain.run({"generate", "--model", plain.path("model.gguf"), "--prompt", "x", "--system", "y"});
  EXPECT_EQ(system.status, 2) << system.err;
  ASSERT_EQ(place.train("out").status, 0);
  const Workplace deeper({.layers = 1});
  const Outcome adapter =
      deeper.run({"generate", "--model", deeper.path("model.gguf"), "--adapter", place.path("out"), "--prompt", "x"});
  EXPECT_EQ(adapter.status, 1) << "an adapter of two layers on a model of one";
}

TEST(Eval, WarnsOfAnAdapterOfAnotherModel) {
  const Workplace place, other({.seed = 2});
  ASSERT_EQ(place.train("out").status, 0);
  for (const char* file : {"out", "out/adapter.gguf"}) {
    const auto eval = [&](const Workplace& at) {
      return at.run(
          {"eval", "--model", at.path("model.gguf"), "--data", at.path("data.jsonl"), "--adapter", place.path(file)});
    };
    const Outcome own = eval(place), foreign = eval(other);
    EXPECT_EQ(own.status, 0);
    EXPECT_EQ(own.err, "");
    EXPECT_EQ(foreign.status, 0);
    EXPECT_NE(foreign.err.find("another model"), std::string::npos) << foreign.err;
    EXPECT_EQ(foreign.error_lines(), 1u) << foreign.err;
  }
}

TEST(Eval, AnAdapterIsNoModelAndADirectoryNoData) {
  const Workplace place;
  ASSERT_EQ(place.train("out").status, 0);
  const Outcome adapter =
      place.run({"eval", "--model", place.path("out/adapter.gguf"), "--data", place.path("data.jsonl")});
  EXPECT_EQ(adapter.status, 1);
  EXPECT_NE(adapter.err.find("--adapter"), std::string::npos) << adapter.err;
  const Outcome directory = place.run({"eval", "--model", place.path("model.gguf"), "--data", place.path("out")});
  EXPECT_EQ(directory.status, 1);
  EXPECT_NE(directory.err.find("is a directory"), std::string::npos) << directory.err;
}

TEST(Eval, TellsLossAndCounts) {
  const Workplace place;
  place.write("text.txt", "The otter sails at noon.");
  const Outcome run =
      place.run({"eval", "--model", place.path("model.gguf"), "--data", place.path("text.txt"), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_NEAR(result.at("perplexity").get<double>(), std::exp(result.at("loss").get<double>()),
              1e-6 * result.at("perplexity").get<double>());
  EXPECT_EQ(result.at("supervisedTokens"), 23) << "24 bytes, the first of which is no label";
  EXPECT_EQ(result.at("used"), 1);
}

}  // namespace
}  // namespace patina::testing
