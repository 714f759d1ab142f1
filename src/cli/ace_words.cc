#include "cli/ace_words.h"

#include <fmt/format.h>

namespace patina {

namespace {

using Rest = AceWord::Rest;
using Written = AceWord::Written;
using Words = std::vector<AceWord>;

// The same word with the same meaning.
AceWord same(const std::string& word, const std::string& unit, const std::string& standard = "",
             Written written = Written::kNever) {
  return {.word = word, .unit = unit, .standard = standard, .ours = word, .written = written};
}

AceWord within(AceWord word, double least, double most) {
  word.least = least, word.most = most;
  return word;
}

AceWord negatable(const std::string& word, Written written = Written::kNever) {
  return {.word = word,
          .standard = "on",
          .ours = word,
          .rest = Rest::kNone,
          .values = {{"on", word}, {"off", "--no-" + word.substr(2)}},
          .written = written,
          .negatable = true};
}

AceWord refused(const std::string& word, const std::string& unit, const std::string& reason) {
  return {.word = word, .unit = unit, .rest = Rest::kRefused, .text = reason};
}

// Of ours, which has no other word there.
AceWord own(const std::string& word, const std::string& unit) {
  AceWord row = same(word, unit);
  row.text = "patina's own";
  return row;
}

// Which has the one value that is built in.
AceWord built_in(const std::string& word, const std::string& value) {
  return {
      .word = word, .unit = "N", .standard = value, .rest = Rest::kNone, .values = {{value, ""}}, .text = "built in"};
}

AceWord storage(const std::string& word, const std::string& unit, const std::vector<std::string>& values) {
  AceWord row{.word = word,
              .unit = unit,
              .rest = Rest::kNone,
              .text = "frozen weights stay as the file stores them, and are computed with in F32",
              .noted = true};
  for (const std::string& value : values) row.values.emplace_back(value, "");
  return row;
}

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

Words stages() {
  return {{.word = "--stages",
           .unit = "LIST",
           .standard = "train,export",
           .rest = Rest::kNone,
           .values = {{"train,export", ""}},
           .text = "every run trains and exports; audio is read by another program"}};
}

Words model(const std::string& word) {
  return {{.word = "--models", .unit = "DIR", .rest = Rest::kFolder, .text = "where " + word + " looks names up"},
          {.word = word,
           .unit = "NAME|PATH",
           .ours = "--model",
           .rest = Rest::kModel,
           .text = "with a slash, or without --models, it is a path; else a file or folder in --models, whose ending "
                   ".gguf or .safetensors may be left out"}};
}

// `lokr`: whether the defaults of LoKr are other ones than ours.
Words adapter(const std::string& rank, const std::string& alpha, Written lokr) {
  return {same("--adapter-type", "KIND", "lora"),
          same("--rank", "N", rank),
          same("--alpha", "NUMBER", alpha),
          within(same("--lokr-dim", "N", "512", lokr), 4, 4096),
          same("--lokr-alpha", "NUMBER", "512", lokr),
          {.word = "--lokr-factor",
           .unit = "N",
           .standard = "6",
           .ours = "--lokr-factor",
           .values = {{"-1", "--lokr-factor -1"}},
           .least = 2,
           .most = 64,
           .written = lokr},
          negatable("--lokr-decompose-both", lokr),
          same("--init-adapter", "PATH"),
          same("--trigger", "WORD"),
          same("--trigger-position", "WHERE", "prepend")};
}

Words optimizer(Written muon_scale) {
  return {same("--optimizer", "NAME", "adamw"),
          {.word = "--muon-lr-scale", .unit = "NUMBER", .standard = "1", .ours = "--muon-scale", .written = muon_scale},
          built_in("--muon-momentum", "0.95"),
          built_in("--muon-ns-steps", "5"),
          built_in("--muon-min-dim", "16"),
          built_in("--muon-bucket", "16"),
          refused("--no-muon-nesterov", "", "Muon has Nesterov's momentum here; leave it out")};
}

Words loop(const std::string& rate, const std::string& epochs, const std::string& target_loss, Written written) {
  return {same("--lr", "NUMBER", rate, written),
          same("--epochs", "N", epochs, written),
          {.word = "--warmup-ratio",
           .unit = "SHARE",
           .standard = "0.05",
           .ours = "--warmup",
           .rest = Rest::kRatio,
           .text = "warm-up takes min(max(50, ratio x steps), steps / 2)"},
          same("--grad-clip", "NUMBER", "1"),
          same("--weight-decay", "NUMBER", "0.01"),
          same("--seed", "N", "42"),
          same("--target-loss", "NUMBER", target_loss, written)};
}

Words run(Written milestones) {
  return {same("--bwd", "NAME", "fused"),
          {.word = "--profile-step",
           .unit = "N",
           .ours = "--profile",
           .rest = Rest::kSwitch,
           .values = {{"0", ""}},
           .least = 1,
           .most = 1 << 30,
           .text = "of all steps, not of one"},
          {.word = "--profile-ops", .ours = "--profile", .rest = Rest::kSwitch},
          same("--milestone-step", "NUMBER", "0.1", milestones),
          same("--milestone-keep", "N", "6"),
          {.word = "--no-milestones",
           .ours = "--milestone-step",
           .rest = Rest::kNone,
           .values = {{"on", "--milestone-step 0"}}},
          same("--out", "DIR"),
          same("--overwrite", ""),
          same("--resume", ""),
          same("--jsonl", ""),
          {.word = "--self-test",
           .ours = "--self-test",
           .text = "checks this build on synthetic models, and trains nothing"}};
}

Words memory_refusals() {
  Words words;
  for (const char* word : {"--vram-reserve-mb", "--vram-safety"})
    words.push_back(refused(word, "NUMBER", "no GPU is used; say --memory SIZE: what the run may take in all"));
  return words;
}

Words own_words() {
  return {own("--memory", "SIZE"),      own("--threads", "N"),  own("--val", "PATH|FRACTION"),
          own("--eval-every", "STEPS"), own("--patience", "N"), own("--export-best", ""),
          own("--save-every", "WHEN"),  own("--keep", "N")};
}

}  // namespace

std::string becomes(const AceWord& word) {
  if (word.rest == Rest::kRefused) return "refused: " + word.text;
  std::string text;
  const auto then = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  const bool plain_switch = word.unit.empty() && word.values.size() <= 1;
  for (const auto& [value, ours] : word.values)
    then(plain_switch ? ours : fmt::format("{}: {}", value, ours.empty() ? "left out" : ours));
  const std::string of_range = word.most > word.least ? fmt::format("{} to {}: ", word.least, word.most) : "";
  const std::string name = word.unit == "NAME|PATH" ? "PATH" : word.unit;
  const bool unchanged = word.rest == Rest::kAsIs && word.ours == word.word && word.values.empty() && of_range.empty();
  if (unchanged && word.text.empty()) then("the same");
  if (word.rest == Rest::kSwitch) then(of_range + word.ours);
  if (word.rest == Rest::kModel || word.rest == Rest::kRatio || (word.rest == Rest::kAsIs && !unchanged))
    then(fmt::format("{}{} {}", of_range, word.ours, name));
  if (!word.text.empty()) then(word.text);
  if (word.written == Written::kAlways) then("its default is passed on");
  if (word.written == Written::kForLokr) then("its default is passed on for a new lokr");
  if (word.written == Written::kForMuon) then("its default is passed on for muon");
  return text;
}

std::vector<AceWord> dit_words() {
  Words words = stages();
  add(words, {{.word = "--tensors", .unit = "DIR", .ours = "--data", .text = "cached songs"}});
  add(words, model("--dit"));
  add(words, adapter("128", "256", Written::kNever));
  add(words, {{.word = "--target-mlp",
               .standard = "on",
               .ours = "--sites",
               .rest = Rest::kNone,
               .values = {{"on", "--sites all"}, {"off", "--sites attn"}},
               .negatable = true},
              {.word = "--layers", .unit = "N", .standard = "0", .ours = "--layers", .text = "0 is all"},
              same("--loss-weighting", "NAME", "flow_snr"),
              same("--snr-gamma", "NUMBER", "5"),
              same("--t-bias", "NUMBER", "0.5"),
              negatable("--channel-balance"),
              same("--timestep-mu", "NUMBER", "-0.4"),
              same("--timestep-sigma", "NUMBER", "1"),
              same("--t-min", "T", "0"),
              same("--t-max", "T", "1"),
              same("--cfg-ratio", "SHARE", "0.15"),
              same("--genre-ratio", "PERCENT", "30"),
              within(same("--batch", "N", "1"), 1, 16),
              same("--grad-accum", "N", "4"),
              {.word = "--ckpt",
               .unit = "N",
               .standard = "1",
               .ours = "--recompute",
               .values = {{"0", "--recompute off"}, {"1", "--recompute auto"}, {"32", "--recompute layer"}},
               .least = 2,
               .most = 32,
               .text = "no transformer of this kind has more than 32 layers"},
              same("--order", "NAME", "shuffle"),
              same("--limit", "N"),
              {.word = "--crop",
               .unit = "FRAMES",
               .standard = "0",
               .ours = "--crop",
               .values = {{"0", "--crop auto"}},
               .least = 2,
               .most = 1 << 24},
              same("--crop-min", "FRAMES", "375"),
              same("--crop-max", "FRAMES", "1250")});
  add(words, memory_refusals());
  add(words, {storage("--mirror", "TYPE", {"f32", "bf16"})});
  add(words, loop("0.0005", "400", "0.4", Written::kNever));
  add(words, optimizer(Written::kNever));
  add(words, run(Written::kNever));
  add(words, own_words());
  return words;
}

std::vector<AceWord> lm_words() {
  Words words = stages();
  add(words, {refused("--codes", "FILE", "audio codes are not read; say --data FILE: text, or .jsonl of samples"),
              {.word = "--data", .unit = "FILE", .ours = "--data", .text = "patina's own", .many = true}});
  add(words, model("--lm"));
  add(words, {refused("--lm-size", "SIZE", "models are chosen by name; say --lm NAME")});
  add(words, adapter("16", "32", Written::kForLokr));
  add(words,
      {refused("--grad-accum", "N", "a step holds so many tokens, not so many sequences; say --batch-tokens TOKENS"),
       own("--batch-tokens", "TOKENS"),
       own("--micro-tokens", "TOKENS"),
       {.word = "--order",
        .unit = "NAME",
        .standard = "shuffle",
        .rest = Rest::kNone,
        .values = {{"shuffle", ""}},
        .text = "samples are shuffled in every epoch"},
       {.word = "--max-len",
        .unit = "TOKENS",
        .standard = "0",
        .ours = "--context",
        .values = {{"0", "--context auto"}},
        .least = 2,
        .most = 1 << 30,
        .written = Written::kAlways},
       {.word = "--low-vram",
        .unit = "WHEN",
        .standard = "auto",
        .ours = "--recompute",
        .rest = Rest::kNone,
        .values = {{"auto", "--recompute auto"}, {"on", "--recompute layer"}, {"off", "--recompute off"}},
        .text = "the head is always in chunks"},
       refused("--attn-head-block", "N", "attention never holds a whole score matrix, and its tiles are its own"),
       refused("--lm-chunk", "N", "the chunks of the head's loss are chosen by the program, and change no result"),
       storage("--weights", "HOW", {"f32-window", "bf16"}),
       {.word = "--loss-on-cot",
        .standard = "off",
        .ours = "--loss-on",
        .rest = Rest::kNone,
        .values = {{"on", "--loss-on from:<think>"}, {"off", "--loss-on assistant"}},
        .negatable = true},
       own("--chat-template", "NAME")});
  add(words, memory_refusals());
  add(words, loop("0.0001", "75", "4", Written::kAlways));
  AceWord least = own("--warmup-min", "STEPS");
  least.standard = "50";
  least.written = Written::kAlways;
  add(words, {least});
  add(words, optimizer(Written::kForMuon));
  add(words, run(Written::kAlways));
  add(words, own_words());
  return words;
}

std::vector<AceWord> gemmbench_words() {
  return {same("--seq", "N"),
          same("--reps", "N"),
          {.word = "--types",
           .unit = "LIST",
           .standard = "F32,BF16",
           .ours = "--types",
           .text = "patina's own",
           .written = Written::kAlways},
          own("--model-shape", "NAME"),
          own("--threads", "N"),
          own("--json", "FILE")};
}

}  // namespace patina
