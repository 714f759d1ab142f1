// The program under its second name: what each word becomes, what is refused, and that a run is patina's to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "cli/run_patina.h"
#include "support/song_files.h"
#include "support/tiny_dit.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kAceTrain = (fs::path(PATINA_BINARY).parent_path() / "ace-train").string();

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A folder with a tiny transformer, a tiny language model, songs, and the program under both names.
class Studio {
 public:
  Studio() {
    fs::create_directories(path("models/lm"));
    fs::create_directory(path("songs"));
    write_tiny_dit(path("models/turbo.safetensors"), TinyDit{});
    write_tiny_model(path("models/lm/tiny.gguf"), TinyModel{});
    for (uint32_t i = 0; i < 3; ++i) {
      SongFile song;
      song.frames = 30 + 7 * i;
      write_song(path("songs/" + std::to_string(i) + ".safetensors"), i, song);
    }
    directory_.write("data.jsonl",
                     "{\"prompt\": \"Who keeps the light?\", \"completion\": \"<think>long</think>Maren.\"}\n"
                     "{\"prompt\": \"What sails?\", \"completion\": \"<think></think>A nettle.\"}\n");
  }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  fs::path write(const std::string& name, const std::string& content) const { return directory_.write(name, content); }
  Outcome run(const Words& words) const { return Process(directory_, words, {}, {}, kAceTrain).wait(); }
  Outcome patina(const Words& words) const { return Process(directory_, words).wait(); }
  // What patina is told, or the complaint where it comes to that.
  std::string line(const Words& words) const {
    const Outcome outcome = run(words);
    for (std::istringstream text(outcome.err); !text.eof();) {
      std::string one;
      std::getline(text, one);
      if (one.starts_with("ace-train: patina ")) return one.substr(std::string("ace-train: patina ").size());
    }
    return outcome.err;
  }
  // The one line of a run that is refused.
  std::string refusal(const Words& words) const {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    return outcome.err;
  }

 private:
  TempDir directory_;
};

struct Row {
  std::string word, value, becomes;  // no value: a switch
};

Words words_of(const Row& row) { return row.value.empty() ? Words{row.word} : Words{row.word, row.value}; }

const Row kBoth[] = {{"--stages", "train,export", ""},
                     {"--rank", "8", "--rank 8"},
                     {"--alpha", "8", "--alpha 8"},
                     {"--trigger", "zither", "--trigger zither"},
                     {"--trigger-position", "append", "--trigger-position append"},
                     {"--init-adapter", "old", "--init-adapter old"},
                     {"--lokr-dim", "64", "--lokr-dim 64"},
                     {"--lokr-alpha", "0", "--lokr-alpha 0"},
                     {"--lokr-factor", "-1", "--lokr-factor -1"},
                     {"--lokr-factor", "8", "--lokr-factor 8"},
                     {"--lokr-decompose-both", "", "--lokr-decompose-both"},
                     {"--no-lokr-decompose-both", "", "--no-lokr-decompose-both"},
                     {"--lr", "2e-3", "--lr 2e-3"},
                     {"--epochs", "3", "--epochs 3"},
                     {"--warmup-ratio", "0.1", "--warmup 0.1"},
                     {"--warmup-ratio", "1", "--warmup 0.5"},
                     {"--grad-clip", "0.5", "--grad-clip 0.5"},
                     {"--weight-decay", "0", "--weight-decay 0"},
                     {"--seed", "7", "--seed 7"},
                     {"--target-loss", "0", "--target-loss 0"},
                     {"--muon-lr-scale", "20", "--muon-scale 20"},
                     {"--muon-momentum", "0.950", ""},
                     {"--muon-ns-steps", "5", ""},
                     {"--muon-min-dim", "16", ""},
                     {"--muon-bucket", "16", ""},
                     {"--bwd", "mm", "--bwd mm"},
                     {"--profile-step", "3", "--profile"},
                     {"--profile-step", "0", ""},
                     {"--profile-ops", "", "--profile"},
                     {"--milestone-step", "0.2", "--milestone-step 0.2"},
                     {"--no-milestones", "", "--milestone-step 0"},
                     {"--milestone-keep", "2", "--milestone-keep 2"},
                     {"--out", "here", "--out here"},
                     {"--overwrite", "", "--overwrite"},
                     {"--resume", "", "--resume"},
                     {"--jsonl", "", "--jsonl"},
                     {"--memory", "2GiB", "--memory 2GiB"},
                     {"--threads", "1", "--threads 1"},
                     {"--val", "0.1", "--val 0.1"},
                     {"--eval-every", "2", "--eval-every 2"},
                     {"--patience", "2", "--patience 2"},
                     {"--export-best", "", "--export-best"},
                     {"--save-every", "end", "--save-every end"},
                     {"--keep", "1", "--keep 1"}};

const Row kOfDit[] = {{"--dit", "dir/m.gguf", "--model dir/m.gguf"},
                      {"--tensors", "songs", "--data songs"},
                      {"--optimizer", "muon", "--optimizer muon"},
                      {"--adapter-type", "lokr", "--adapter-type lokr"},
                      {"--target-mlp", "", "--sites all"},
                      {"--no-target-mlp", "", "--sites attn"},
                      {"--layers", "0", "--layers 0"},
                      {"--loss-weighting", "none", "--loss-weighting none"},
                      {"--snr-gamma", "4", "--snr-gamma 4"},
                      {"--t-bias", "0", "--t-bias 0"},
                      {"--channel-balance", "", "--channel-balance"},
                      {"--no-channel-balance", "", "--no-channel-balance"},
                      {"--timestep-mu", "-0.5", "--timestep-mu -0.5"},
                      {"--timestep-sigma", "2", "--timestep-sigma 2"},
                      {"--t-min", "0.1", "--t-min 0.1"},
                      {"--t-max", "0.9", "--t-max 0.9"},
                      {"--cfg-ratio", "0", "--cfg-ratio 0"},
                      {"--genre-ratio", "0", "--genre-ratio 0"},
                      {"--batch", "16", "--batch 16"},
                      {"--grad-accum", "2", "--grad-accum 2"},
                      {"--ckpt", "0", "--recompute off"},
                      {"--ckpt", "1", "--recompute auto"},
                      {"--ckpt", "5", "--recompute 5"},
                      {"--ckpt", "32", "--recompute layer"},
                      {"--order", "fixed", "--order fixed"},
                      {"--limit", "2", "--limit 2"},
                      {"--crop", "0", "--crop auto"},
                      {"--crop", "500", "--crop 500"},
                      {"--crop-min", "100", "--crop-min 100"},
                      {"--crop-max", "900", "--crop-max 900"},
                      {"--mirror", "bf16", ""}};

const Row kOfLm[] = {{"--lm", "dir/m.gguf", "--model dir/m.gguf"},
                     {"--data", "a.jsonl", "--data a.jsonl"},
                     {"--adapter-type", "lora", "--adapter-type lora"},
                     {"--optimizer", "adamw", "--optimizer adamw"},
                     {"--batch-tokens", "64", "--batch-tokens 64"},
                     {"--micro-tokens", "64", "--micro-tokens 64"},
                     {"--order", "shuffle", ""},
                     {"--max-len", "0", "--context auto"},
                     {"--max-len", "64", "--context 64"},
                     {"--low-vram", "auto", "--recompute auto"},
                     {"--low-vram", "on", "--recompute layer"},
                     {"--low-vram", "off", "--recompute off"},
                     {"--weights", "f32-window", ""},
                     {"--loss-on-cot", "", "--loss-on 'from:<think>'"},
                     {"--no-loss-on-cot", "", "--loss-on assistant"},
                     {"--chat-template", "chatml", "--chat-template chatml"},
                     {"--warmup-min", "9", "--warmup-min 9"}};

const Row kOfGemmbench[] = {{"--seq", "64", "--seq 64"},       {"--reps", "3", "--reps 3"},
                            {"--types", "F32", "--types F32"}, {"--model-shape", "nothing", "--model-shape nothing"},
                            {"--threads", "1", "--threads 1"}, {"--json", "out.json", "--json out.json"}};

// Of train-lm, whose defaults are other ones: what is written where no word says it.
const std::map<std::string, std::string> kWrittenOfLm = {{"--lr", "0.0001"},          {"--epochs", "75"},
                                                         {"--target-loss", "4"},      {"--warmup-min", "50"},
                                                         {"--milestone-step", "0.1"}, {"--context", "auto"}};

// Parts of a line, in any order: "--lr 0.1", "--jsonl".
std::multiset<std::string> parts(const std::string& line) {
  std::multiset<std::string> all;
  std::istringstream text(line);
  std::string part, word;
  while (text >> word) {
    if (word.starts_with("--") && !part.empty()) all.insert(std::exchange(part, ""));
    part += (part.empty() ? "" : " ") + word;
  }
  all.insert(part);
  return all;
}

template <size_t kCount>
void expect_rows(const Studio& studio, const std::string& command, const Row (&rows)[kCount], const Words& base,
                 const std::string& base_line, const std::map<std::string, std::string>& written) {
  for (const Row& row : rows) {
    const bool is_model = row.becomes.starts_with("--model ");
    std::string expected = (is_model ? command : base_line) + " " + row.becomes;
    const std::string flag = row.becomes.substr(0, row.becomes.find(' '));
    for (const auto& [name, value] : written)
      if (name != flag) expected += " " + name + " " + value;
    Words words = is_model ? Words{command} : base;
    EXPECT_EQ(parts(studio.line(joined(words, words_of(row)))), parts(expected)) << row.word << " " << row.value;
  }
}

TEST(AceTrain, EveryWordBecomesWhatTheTableSays) {
  const Studio studio;
  const Words dit = {"train-dit", "--dit", "m"}, lm = {"train-lm", "--lm", "m"};
  expect_rows(studio, "train-dit", kBoth, dit, "train-dit --model m", {});
  expect_rows(studio, "train-dit", kOfDit, dit, "train-dit --model m", {});
  expect_rows(studio, "train-lm", kBoth, lm, "train-lm --model m", kWrittenOfLm);
  expect_rows(studio, "train-lm", kOfLm, lm, "train-lm --model m", kWrittenOfLm);
  // A wrong shape keeps it from measuring.
  const Words shape = {"--model-shape", "x"};
  for (const Row& row : kOfGemmbench) {
    const Words words = row.word == "--model-shape" ? words_of(row) : joined(shape, words_of(row));
    std::string expected = "gemmbench " + row.becomes;
    if (row.word != "--model-shape") expected += " --model-shape x";
    if (row.word != "--types") expected += " --types F32,BF16";
    EXPECT_EQ(parts(studio.line(joined({"spike", "gemmbench"}, words))), parts(expected)) << row.word;
  }
}

TEST(AceTrain, DefaultsThatDependOnOthersAreWrittenWithThem) {
  const Studio studio;
  const auto has = [&](const Words& words, const std::string& part) {
    return parts(studio.line(joined({"train-lm", "--lm", "m"}, words))).contains(part);
  };
  const Words lokr = {"--adapter-type", "lokr"};
  for (const char* part : {"--lokr-dim 512", "--lokr-alpha 512", "--lokr-factor 6", "--lokr-decompose-both"}) {
    EXPECT_TRUE(has(lokr, part)) << part;
    EXPECT_FALSE(has(joined(lokr, {"--init-adapter", "old"}), part)) << part;
  }
  EXPECT_TRUE(has({"--optimizer", "muon"}, "--muon-scale 1"));
  EXPECT_FALSE(has({"--no-milestones"}, "--milestone-step 0.1"));
  EXPECT_TRUE(has({"--data", "a.jsonl", "--data", "b.jsonl"}, "--data b.jsonl"));
  const std::string profile = studio.line({"train-dit", "--dit", "m", "--profile-step", "2", "--profile-ops"});
  EXPECT_EQ(profile, "train-dit --model m --profile") << "once";
}

// Words of the help, with what stands behind them: its default and its text.
struct Help {
  std::string standard, text;
};
std::map<std::string, Help> help_of(const std::string& help) {
  std::map<std::string, Help> words;
  std::istringstream lines(help);
  std::string line, word;
  while (std::getline(lines, line)) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    if (begin > 2) {  // the text of a long word
      if (!word.empty() && words[word].text.empty()) words[word].text = line.substr(begin);
      continue;
    }
    if (!line.starts_with("  --")) continue;
    const size_t end = line.find("  ", begin);
    const std::string head = line.substr(begin, end == std::string::npos ? end : end - begin);
    word = head.substr(0, head.find_first_of(" ,{"));
    Help& found = words[word];
    const size_t equals = head.find('=');
    if (equals != std::string::npos) found.standard = head.substr(equals + 1, head.find(' ', equals) - equals - 1);
    if (end != std::string::npos) found.text = line.substr(line.find_first_not_of(' ', end));
  }
  return words;
}

bool is_tested(const std::string& word, const std::string& text, std::span<const Row> one, std::span<const Row> other) {
  const auto names = [&](const Row& row) { return row.word == word; };
  return text.starts_with("refused: ") || word == "--models" || word == "--config" || word == "--self-test" ||
         std::ranges::any_of(one, names) || std::ranges::any_of(other, names);
}

TEST(AceTrain, NoWordOfTheHelpIsUntested) {
  const Studio studio;
  for (const auto& [word, help] : help_of(studio.run({"train-dit", "--help"}).out))
    EXPECT_TRUE(is_tested(word, help.text, kBoth, kOfDit)) << word;
  for (const auto& [word, help] : help_of(studio.run({"train-lm", "--help"}).out))
    EXPECT_TRUE(is_tested(word, help.text, kBoth, kOfLm)) << word;
  for (const auto& [word, help] : help_of(studio.run({"spike", "gemmbench", "--help"}).out))
    EXPECT_TRUE(is_tested(word, help.text, kOfGemmbench, {})) << word;
}

// The described defaults, as text or number. Switches have theirs in the text.
bool same_default(const std::string& a, const std::string& b) {
  char* end = nullptr;
  const double number = std::strtod(a.c_str(), &end);
  if (a.empty() || *end != '\0') return a == b;
  const double other = std::strtod(b.c_str(), &end);
  return !b.empty() && *end == '\0' && std::abs(number - other) <= 1e-7 * std::abs(number);
}

using Defaults = std::vector<std::tuple<std::string, std::string, std::string>>;  // word, default, patina's word

TEST(AceTrain, DefaultsAreThoseOfTheDescription) {
  const Studio studio;
  const Defaults dit = {{"--adapter-type", "lora", ""},
                        {"--rank", "128", ""},
                        {"--alpha", "256", ""},
                        {"--lokr-dim", "512", ""},
                        {"--lokr-alpha", "512", ""},
                        {"--lokr-factor", "6", ""},
                        {"--layers", "0", ""},
                        {"--loss-weighting", "flow_snr", ""},
                        {"--snr-gamma", "5", ""},
                        {"--t-bias", "0.5", ""},
                        {"--timestep-mu", "-0.4", ""},
                        {"--timestep-sigma", "1", ""},
                        {"--t-min", "0", ""},
                        {"--t-max", "1", ""},
                        {"--cfg-ratio", "0.15", ""},
                        {"--genre-ratio", "30", ""},
                        {"--lr", "5e-4", ""},
                        {"--epochs", "400", ""},
                        {"--batch", "1", ""},
                        {"--grad-accum", "4", ""},
                        {"--warmup-ratio", "0.05", "--warmup"},
                        {"--grad-clip", "1", ""},
                        {"--weight-decay", "0.01", ""},
                        {"--seed", "42", ""},
                        {"--target-loss", "0.4", ""},
                        {"--order", "shuffle", ""},
                        {"--crop-min", "375", ""},
                        {"--crop-max", "1250", ""},
                        {"--bwd", "fused", ""},
                        {"--optimizer", "adamw", ""},
                        {"--muon-lr-scale", "1", "--muon-scale"},
                        {"--milestone-step", "0.1", ""},
                        {"--milestone-keep", "6", ""}};
  std::map<std::string, Help> words = help_of(studio.run({"train-dit", "--help"}).out),
                              ours = help_of(studio.patina({"train-dit", "--help"}).out);
  for (const auto& [word, standard, name] : dit) {
    EXPECT_TRUE(same_default(standard, words[word].standard)) << word << " " << words[word].standard;
    const std::string& flag = name.empty() ? word : name;
    EXPECT_TRUE(same_default(standard, ours[flag].standard)) << "patina " << flag << " " << ours[flag].standard;
  }
  EXPECT_EQ(words["--ckpt"].standard, "1");
  EXPECT_EQ(ours["--recompute"].standard, "auto");
  EXPECT_EQ(words["--crop"].standard, "0");
  EXPECT_EQ(ours["--crop"].standard, "auto");
  EXPECT_EQ(ours["--sites"].standard, "all");
  EXPECT_EQ(ours["--warmup-min"].standard, "50");
  for (const char* word : {"--lokr-decompose-both", "--target-mlp", "--channel-balance"})
    EXPECT_TRUE(words[word].text.ends_with("(on)")) << word << " " << words[word].text;

  const Defaults lm = {{"--adapter-type", "lora", ""},
                       {"--rank", "16", ""},
                       {"--alpha", "32", ""},
                       {"--lr", "1e-4", "written"},
                       {"--epochs", "75", "written"},
                       {"--warmup-ratio", "0.05", "--warmup"},
                       {"--grad-clip", "1", ""},
                       {"--weight-decay", "0.01", ""},
                       {"--seed", "42", ""},
                       {"--target-loss", "4", "written"},
                       {"--milestone-step", "0.1", "written"},
                       {"--milestone-keep", "6", ""},
                       {"--optimizer", "adamw", ""},
                       {"--bwd", "fused", ""},
                       {"--lokr-dim", "512", "written"},
                       {"--lokr-alpha", "512", "written"},
                       {"--lokr-factor", "6", "written"},
                       {"--muon-lr-scale", "1", "written"}};
  words = help_of(studio.run({"train-lm", "--help"}).out);
  ours = help_of(studio.patina({"train-lm", "--help"}).out);
  for (const auto& [word, standard, name] : lm) {
    EXPECT_TRUE(same_default(standard, words[word].standard)) << word << " " << words[word].standard;
    const std::string& flag = name.empty() ? word : name;
    if (name == "written")
      EXPECT_NE(words[word].text.find("is passed on"), std::string::npos) << word;
    else
      EXPECT_TRUE(same_default(standard, ours[flag].standard)) << "patina " << flag << " " << ours[flag].standard;
  }
}

TEST(AceTrain, RefusalsNameTheWordAndSayWhatToDo) {
  const Studio studio;
  const struct {
    Words words;
    std::string part;
  } refused[] = {
      {{"train-dit", "--vram-reserve-mb", "512"}, "--vram-reserve-mb: no GPU is used; say --memory"},
      {{"train-dit", "--vram-safety", "0.9"}, "--vram-safety: "},
      {{"train-lm", "--codes", "c.jsonl"}, "--codes: audio codes are not read; say --data"},
      {{"train-lm", "--lm-chunk", "128"}, "--lm-chunk: "},
      {{"train-lm", "--attn-head-block", "2"}, "--attn-head-block: "},
      {{"train-lm", "--lm-size", "4B"}, "--lm-size: "},
      {{"train-lm", "--grad-accum", "2"}, "say --batch-tokens"},
      {{"train-dit", "--dit", "m", "--no-muon-nesterov"}, "--no-muon-nesterov: "},
      {{"train-dit", "--dit", "m", "--muon-ns-steps", "6"}, "--muon-ns-steps: expected 5, found 6"},
      {{"train-dit", "--dit", "m", "--stages", "extract,train"}, "--stages: expected train,export"},
      {{"train-dit", "--dit", "m", "--ckpt", "33"}, "--ckpt: expected 0, 1 or a whole number from 2 to 32, found 33"},
      {{"train-dit", "--dit", "m", "--ckpt", "2.5"}, "--ckpt: "},
      {{"train-dit", "--dit", "m", "--batch", "17"}, "--batch: expected a whole number from 1 to 16, found 17"},
      {{"train-dit", "--dit", "m", "--lokr-dim", "3"}, "--lokr-dim: expected a whole number from 4 to 4096"},
      {{"train-dit", "--dit", "m", "--lokr-factor", "1"}, "--lokr-factor: expected -1 or a whole number from 2 to 64"},
      {{"train-dit", "--dit", "m", "--warmup-ratio", "1.5"}, "--warmup-ratio: expected a number from 0 to 1"},
      {{"train-dit", "--dit", "m", "--mirror", "f16"}, "--mirror: expected f32 or bf16, found f16"},
      {{"train-dit", "--dit", "m", "--milestone-step", "0.2", "--no-milestones"}, "leave one out"},
      {{"train-dit", "--dit", "m", "--target-mlp", "--no-target-mlp"}, "--no-target-mlp were both given"},
      {{"train-lm", "--lm", "m", "--order", "fixed"}, "--order: expected shuffle, found fixed"},
      {{"train-dit", "--dit", "m", "--sites", "attn"}, "--sites"},
      {{"train-dit", "--dit", "m", "--dit", "n"}, "--dit was given twice (see ace-train train-dit --help)"},
      {{"train-dit", "--tensors", "t"}, "--dit is required"},
      {{"train-dit", "--models", studio.path("models")}, "which holds lm, turbo.safetensors"},
      {{"train-dit", "--models", studio.path("models"), "--dit", "turb"}, "--dit turb: no such file or folder"},
      {{"spike"}, "spike gemmbench"},
      {{"merge"}, "\"merge\" is not a command"},
      {{}, "which command?"},
  };
  for (const auto& one : refused) {
    const std::string err = studio.refusal(one.words);
    EXPECT_TRUE(err.starts_with("ace-train: ")) << err;
    EXPECT_NE(err.find(one.part), std::string::npos) << err;
  }
  const Outcome events = studio.run({"train-dit", "--dit", "m", "--ckpt", "99", "--jsonl"});
  EXPECT_EQ(events.json_lines().at(0).at("event"), "fatal");
}

// What the command itself finds wrong is told in the words of the user.
TEST(AceTrain, ComplaintsSpeakHisWords) {
  const Studio studio;
  const auto complaint = [&](const Words& words) {
    const Outcome outcome = studio.run(words);
    EXPECT_NE(outcome.status, 0);
    return outcome.err.substr(outcome.err.find('\n') + 1);  // after the line that says what runs
  };
  const Words dit = {"train-dit", "--models", studio.path("models"), "--dit", "turbo"};
  const Words ready = joined(dit, {"--tensors", studio.path("songs"), "--out", studio.path("out"), "--epochs", "1"});
  std::string err = complaint(dit);
  EXPECT_NE(err.find("ace-train: --tensors is required"), std::string::npos) << err;
  err = complaint(joined(ready, {"--lr", "-1"}));
  EXPECT_NE(err.find("ace-train: --lr: expected a number above 0"), std::string::npos) << err;
  EXPECT_NE(err.find("(see ace-train train-dit --help)"), std::string::npos) << err;
  err = complaint(joined(ready, {"--muon-lr-scale", "2"}));
  EXPECT_NE(err.find("--muon-lr-scale is for --optimizer muon"), std::string::npos) << err;
  err = complaint(joined(ready, {"--memory", "1MB", "--crop", "20", "--ckpt", "2"}));
  EXPECT_NE(err.find("(with --ckpt 32 and --crop 20)"), std::string::npos) << err;
  EXPECT_EQ(err.find("--recompute"), std::string::npos) << err;
  const Words lm = {
      "train-lm", "--models",        studio.path("models"), "--lm", "lm", "--data", studio.path("data.jsonl"),
      "--out",    studio.path("out")};
  err = complaint(joined(lm, {"--max-len", "1000000"}));
  EXPECT_NE(err.find("--max-len 1000000 is more than"), std::string::npos) << err;
  err = complaint(joined(lm, {"--memory", "1MB", "--low-vram", "on"}));
  EXPECT_NE(err.find("--low-vram on"), std::string::npos) << err;
}

void expect_half_is_warm_up(const Outcome& run) {
  int seen = 0;
  for (const nlohmann::json& event : run.json_lines()) {
    if (event.at("event") != "data") continue;
    EXPECT_EQ(event.at("warmupSteps"), event.at("totalSteps").get<int>() / 2);
    ++seen;
  }
  EXPECT_EQ(seen, 1);
}

TEST(AceTrain, TrainsTheSameDitToTheBit) {
  const Studio studio;
  Words words = {"train-dit",
                 "--models",
                 studio.path("models"),
                 "--dit",
                 "turbo",
                 "--tensors",
                 studio.path("songs"),
                 "--out",
                 studio.path("theirs"),
                 "--rank",
                 "4",
                 "--alpha",
                 "8",
                 "--epochs",
                 "3",
                 "--grad-accum",
                 "2",
                 "--warmup-ratio",
                 "0.1",
                 "--no-target-mlp",
                 "--ckpt",
                 "2",
                 "--crop",
                 "24",
                 "--mirror",
                 "f32",
                 "--target-loss",
                 "0",
                 "--jsonl"};
  const Outcome theirs = studio.run(words);
  ASSERT_EQ(theirs.status, 0) << theirs.err;
  EXPECT_NE(theirs.err.find("--mirror: frozen weights stay as the file stores them"), std::string::npos) << theirs.err;
  const Outcome ours = studio.patina({"train-dit",
                                      "--model",
                                      studio.path("models/turbo.safetensors"),
                                      "--data",
                                      studio.path("songs"),
                                      "--out",
                                      studio.path("ours"),
                                      "--rank",
                                      "4",
                                      "--alpha",
                                      "8",
                                      "--epochs",
                                      "3",
                                      "--grad-accum",
                                      "2",
                                      "--warmup",
                                      "0.1",
                                      "--sites",
                                      "attn",
                                      "--recompute",
                                      "2",
                                      "--crop",
                                      "24",
                                      "--target-loss",
                                      "0"});
  ASSERT_EQ(ours.status, 0) << ours.err;
  EXPECT_TRUE(read_file(studio.path("theirs/adapter_model.safetensors")) ==
              read_file(studio.path("ours/adapter_model.safetensors")));
  // Six steps: the warm-up is half of them, whatever the ratio says.
  expect_half_is_warm_up(theirs);

  words.push_back("--resume");
  EXPECT_EQ(studio.run(words).status, 0);
  set_flag(words, "--ckpt", "1");
  words.erase(std::ranges::find(words, "--no-target-mlp"));
  const Outcome other = studio.run(words);
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("--target-mlp and --layers choose"), std::string::npos) << other.err;
}

TEST(AceTrain, TrainsTheSameLmToTheBit) {
  const Studio studio;
  const Outcome theirs =
      studio.run({"train-lm", "--models", studio.path("models"), "--lm", "lm", "--data", studio.path("data.jsonl"),
                  "--out", studio.path("theirs"), "--rank", "4", "--epochs", "4", "--loss-on-cot", "--low-vram", "on",
                  "--optimizer", "muon", "--jsonl"});
  ASSERT_EQ(theirs.status, 0) << theirs.err;
  const Outcome ours = studio.patina({"train-lm",
                                      "--model",
                                      studio.path("models/lm/tiny.gguf"),
                                      "--data",
                                      studio.path("data.jsonl"),
                                      "--out",
                                      studio.path("ours"),
                                      "--rank",
                                      "4",
                                      "--epochs",
                                      "4",
                                      "--lr",
                                      "1e-4",
                                      "--target-loss",
                                      "4",
                                      "--warmup-min",
                                      "50",
                                      "--optimizer",
                                      "muon",
                                      "--muon-scale",
                                      "1",
                                      "--loss-on",
                                      "from:<think>",
                                      "--recompute",
                                      "layer",
                                      "--context",
                                      "auto"});
  ASSERT_EQ(ours.status, 0) << ours.err;
  EXPECT_TRUE(read_file(studio.path("theirs/adapter_model.safetensors")) ==
              read_file(studio.path("ours/adapter_model.safetensors")));
  expect_half_is_warm_up(theirs);
}

TEST(AceTrain, FlagsOfAFileAreHisWords) {
  const Studio studio;
  const fs::path file = studio.write("run.toml", "dit = \"m\"\ntensors = \"songs\"\ntarget-mlp = false\nckpt = 0\n");
  EXPECT_EQ(parts(studio.line({"train-dit", "--config", file.string()})),
            parts("train-dit --model m --data songs --sites attn --recompute off"));
}

TEST(AceTrain, SelfTestTakesNoOtherWords) {
  const Studio studio;
  const fs::path file = studio.write("run.toml", "lm = \"m\"\nself-test = true\n");
  const Outcome outcome = studio.run({"train-lm", "--config", file.string()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("beside --self-test"), std::string::npos) << outcome.err;
}

TEST(AceTrain, RunsSelfTestAndGemmbench) {
  const Studio studio;
  const Outcome self_test = studio.run({"train-lm", "--self-test", "--only", "LM2"});
  EXPECT_EQ(self_test.status, 0) << self_test.err;
  EXPECT_NE(self_test.out.find("LM2"), std::string::npos) << self_test.out;
  const Outcome bench =
      studio.run({"spike", "gemmbench", "--seq", "8", "--reps", "1", "--model-shape", "64x96", "--threads", "1"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_NE(bench.out.find("BF16"), std::string::npos) << bench.out;
  const Outcome none = studio.run({"spike", "gemmbench", "--reps", "0"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("(see ace-train spike gemmbench --help)"), std::string::npos) << none.err;
}

// docs/ace-train.md has the tables of the help, word for word.
TEST(AceTrain, TheDocumentHasTheTable) {
  const Studio studio;
  const std::string document = read_file(fs::path(PATINA_SOURCE_DIR) / "docs/ace-train.md");
  std::string missing;
  for (const Words& command : {Words{"train-dit"}, Words{"train-lm"}, Words{"spike", "gemmbench"}}) {
    std::string title = "ace-train", table;
    for (const std::string& word : command) title += " " + word;
    for (const auto& [word, help] : help_of(studio.run(joined(command, {"--help"})).out)) {
      if (word == "--config") continue;
      std::string text = help.text;
      if (const size_t at = text.find('<'); at != std::string::npos) text.replace(at, 1, "&lt;");
      table += "| `" + word + "` | " + help.standard + " | " + text + " |\n";
    }
    const std::string section = "## " + title + "\n\n| word | default | becomes |\n|---|---|---|\n" + table;
    if (document.find(section) == std::string::npos) missing += section + "\n";
  }
  EXPECT_EQ(missing, "") << "docs/ace-train.md must hold:\n" << missing;
}

}  // namespace
}  // namespace patina::testing
