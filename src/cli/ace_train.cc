#include "cli/ace_train.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "cli/ace_words.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/self_test.h"
#include "cli/spelling.h"
#include "cli/train_run.h"
#include "cli/train_summary.h"

namespace patina {

namespace {

namespace fs = std::filesystem;
using Rest = AceWord::Rest;
using Written = AceWord::Written;

constexpr const char* kName = "ace-train";
constexpr std::string_view kSpike = "spike";

struct AceCommand {
  Command ours;      // the name as its users write it
  std::string name;  // of ours
  std::vector<AceWord> words;
  bool trains;
};

std::vector<AceCommand> ace_commands() {
  return {{{"train-dit", "Train an adapter of the ACE-Step music diffusion transformer.", run_train_dit},
           "train-dit",
           dit_words(),
           true},
          {{"train-lm", "Train an adapter of a language model.", run_train_lm}, "train-lm", lm_words(), true},
          {{"spike gemmbench", "Measure the frozen products on this machine.", run_gemmbench},
           "gemmbench",
           gemmbench_words(),
           false}};
}

// What was given, by word: "on" and "off" of switches.
using Given = std::map<std::string, std::vector<std::string>>;

bool read_words(const AceCommand& command, int argc, char** argv, Given& given) {
  CommandLine line(command.ours);
  line.footer(fmt::format("Behind each word stands what it becomes for patina {}, which runs it: see patina {} --help.",
                          command.name, command.name));
  std::deque<bool> switches;
  std::deque<std::string> values;
  std::deque<std::vector<std::string>> lists;
  std::vector<std::pair<const AceWord*, const CLI::Option*>> options;
  for (const AceWord& word : command.words) {
    CLI::Option* option = nullptr;
    if (word.unit.empty()) {
      const std::string names =
          word.negatable ? fmt::format("{0},!--no-{1}", word.word, word.word.substr(2)) : word.word;
      const std::string standard = word.standard.empty() ? "" : fmt::format(" ({})", word.standard);
      option = line.add_flag(names, switches.emplace_back(false), becomes(word) + standard);
    } else if (word.many) {
      option = line.add_option(word.word, lists.emplace_back(), becomes(word))
                   ->expected(1)
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      option = line.add_option(word.word, values.emplace_back(), becomes(word));
    }
    if (!word.unit.empty()) option->type_name(word.unit)->default_str(word.standard);
    options.emplace_back(&word, option);
  }
  if (!line.read(argc, argv)) return false;
  for (const auto& [word, option] : options) {
    if (option->count() == 0) continue;
    std::vector<std::string>& found = given[word->word];
    found = option->results();
    if (word->unit.empty() && std::ranges::count(found, found.front()) != std::ssize(found))
      fail(Error::Kind::kUsage, "{0} and --no-{1} were both given; give one of them", word->word, word->word.substr(2));
    if (word->unit.empty()) found = {found.front() == "false" ? "off" : "on"};
  }
  return true;
}

std::optional<double> number_of(const std::string& text) {
  double number = 0.0;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool same_value(const std::string& a, const std::string& b) {
  const std::optional<double> number = number_of(a);
  return a == b || (number && number == number_of(b));
}

// "0, 1 or a whole number from 2 to 32"
std::string expected_text(const AceWord& word) {
  std::vector<std::string> all;
  for (const auto& [value, ours] : word.values)
    if (const std::optional<double> number = number_of(value);
        !(number && word.most > word.least && *number >= word.least && *number <= word.most))
      all.push_back(value);
  if (word.most > word.least) all.push_back(fmt::format("a whole number from {} to {}", word.least, word.most));
  std::string text = all.front();
  for (size_t i = 1; i < all.size(); ++i) text += (i + 1 < all.size() ? ", " : " or ") + all[i];
  return text;
}

[[noreturn]] void refuse_value(const AceWord& word, const std::string& expected, const std::string& value) {
  fail(Error::Kind::kUsage, "{}: expected {}, found {}{}", word.word, expected, value,
       word.rest == Rest::kNone && !word.text.empty() ? "; " + word.text : "");
}

// What may be a model: files of these endings, and folders where asked for.
std::vector<std::string> names_in(const fs::path& folder, const std::set<std::string>& endings, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (endings.contains(entry.path().extension().string()) ||
        (folders && entry.is_directory(error) && !name.starts_with('.')))
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  if (names.empty()) return "nothing";
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + std::min(kMost, names.size()), ", "),
                     names.size() > kMost ? ", ..." : "");
}

std::string models_in(const std::string& folder) { return listed(names_in(folder, {".gguf", ".safetensors"}, true)); }

// The path of a model that a word names. A language model is one file: of a folder, the only .gguf in it.
std::string find_model(const AceWord& word, const std::string& value, const std::string& folder) {
  std::error_code ignored;
  fs::path path = value;
  if (!folder.empty() && value.find('/') == std::string::npos) {
    const std::string candidates[] = {value, value + ".gguf", value + ".safetensors"};
    const auto found = std::ranges::find_if(
        candidates, [&](const std::string& name) { return fs::exists(fs::path(folder) / name, ignored); });
    if (found == std::end(candidates))
      fail(Error::Kind::kUsage, "{} {}: no such file or folder in --models {}, which holds {}", word.word, value,
           folder, models_in(folder));
    path = fs::path(folder) / *found;
  }
  if (word.word == "--lm" && fs::is_directory(path, ignored)) {
    const std::vector<std::string> files = names_in(path, {".gguf"}, false);
    if (files.size() != 1)
      fail(Error::Kind::kUsage, "{} {}: expected a folder with one .gguf file, found {}; name the file", word.word,
           value, listed(files));
    path /= files.front();
  }
  return path.string();
}

// "--recompute off" as two arguments.
std::vector<std::string> arguments_of(const std::string& ours) {
  const size_t blank = ours.find(' ');
  if (ours.empty()) return {};
  if (blank == std::string::npos) return {ours};
  return {ours.substr(0, blank), ours.substr(blank + 1)};
}

std::vector<std::string> translate(const AceWord& word, const std::string& value, const std::string& folder) {
  for (const auto& [theirs, ours] : word.values)
    if (same_value(value, theirs)) return arguments_of(ours);
  const std::optional<double> number = number_of(value);
  if (word.most > word.least &&
      !(number && *number == std::floor(*number) && *number >= word.least && *number <= word.most))
    refuse_value(word, expected_text(word), value);
  switch (word.rest) {
    case Rest::kAsIs:
      return word.unit.empty() ? std::vector{word.ours} : std::vector{word.ours, value};
    case Rest::kSwitch:
      return {word.ours};
    case Rest::kRatio:
      if (!number || !(*number >= 0.0 && *number <= 1.0)) refuse_value(word, "a number from 0 to 1", value);
      return {word.ours, *number > 0.5 ? "0.5" : value};
    case Rest::kModel:
      return {word.ours, find_model(word, value, folder)};
    case Rest::kNone:
      refuse_value(word, expected_text(word), value);
    case Rest::kFolder:
    case Rest::kRefused:
      return {};
  }
  PATINA_CHECK(false, "word {}", word.word);
}

bool writes_default(const AceWord& word, const Given& given) {
  const auto chosen = [&](const char* flag, const char* value) {
    const auto found = given.find(flag);
    return found != given.end() && found->second.front() == value;
  };
  switch (word.written) {
    case Written::kNever:
      return false;
    case Written::kAlways:
      return true;
    case Written::kForLokr:  // an adapter that is there already has its own
      return chosen("--adapter-type", "lokr") && !given.contains("--init-adapter");
    case Written::kForMuon:
      return chosen("--optimizer", "muon");
  }
  PATINA_CHECK(false, "word {}", word.word);
}

// The line for ours: its name, then flags and values.
std::vector<std::string> rewrite(const AceCommand& command, const Given& given) {
  for (const AceWord& word : command.words)
    if (word.rest == Rest::kRefused && given.contains(word.word))
      fail(Error::Kind::kUsage, "{}: {}", word.word, word.text);
  std::string folder;
  for (const AceWord& word : command.words)
    if (word.rest == Rest::kFolder && given.contains(word.word)) folder = given.at(word.word).front();
  for (const AceWord& word : command.words)
    if (word.rest == Rest::kModel && !given.contains(word.word))
      fail(Error::Kind::kUsage, "{} is required: {}", word.word,
           folder.empty() ? "a path, or a name in --models"
                          : fmt::format("a name in --models {}, which holds {}", folder, models_in(folder)));

  std::vector<std::string> line = {command.name};
  std::map<std::string, std::pair<std::string, std::vector<std::string>>> by_flag;  // of ours: the word, what it became
  const auto say_flag = [&](const AceWord& word, const std::vector<std::string>& arguments) {
    if (arguments.empty()) return;
    const auto [earlier, fresh] = by_flag.try_emplace(word.ours, word.word, arguments);
    if (!fresh && earlier->second.first != word.word) {
      if (earlier->second.second == arguments) return;
      fail(Error::Kind::kUsage, "{} and {} are two values of one setting; leave one out", earlier->second.first,
           word.word);
    }
    line.insert(line.end(), arguments.begin(), arguments.end());
  };
  for (const AceWord& word : command.words)
    if (const auto found = given.find(word.word); found != given.end()) {
      for (const std::string& value : found->second) say_flag(word, translate(word, value, folder));
      if (word.noted) say("{}: {}: {}\n", kName, word.word, word.text);
    }
  for (const AceWord& word : command.words)
    if (!given.contains(word.word) && writes_default(word, given) && !by_flag.contains(word.ours))
      say_flag(word, translate(word, word.standard, folder));
  return line;
}

// How to speak of the flags of ours; the words that were given come first.
std::vector<Spelling> spellings(const AceCommand& command, const Given& given) {
  std::vector<Spelling> all;
  for (const bool typed : {true, false})
    for (const AceWord& word : command.words) {
      if (word.ours.empty() || given.contains(word.word) != typed) continue;
      Spelling spelling{word.ours, word.word, {}, word.rest != Rest::kNone};
      for (const auto& [value, ours] : word.values)
        if (const std::vector<std::string> arguments = arguments_of(ours); arguments.size() == 2)
          spelling.values.emplace_back(arguments[1], !word.unit.empty() ? word.word + " " + value
                                                     : value == "on"    ? word.word
                                                                        : "--no-" + word.word.substr(2));
      all.push_back(std::move(spelling));
    }
  return all;
}

int run(const AceCommand& command, int argc, char** argv) {
  if (command.trains && asks_for_self_test(argc, argv)) return command.ours.run(command.ours, argc, argv);
  std::vector<std::string> line;
  const bool not_read_yet = false;
  const bool wanted = 0 == tell_failure(argc, argv, &not_read_yet, [&] {
                        Given given;
                        if (!read_words(command, argc, argv, given)) return 1;
                        line = rewrite(command, given);
                        speak_as(kName, spellings(command, given));
                        return 0;
                      });
  if (!wanted) return 0;
  std::string shown = "patina";
  std::vector<char*> arguments;
  for (std::string& argument : line) {
    shown += " " + shell_quoted(argument);
    arguments.push_back(argument.data());
  }
  say("{}: {}\n", kName, shown);
  return command.ours.run(command.ours, static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

bool is_ace_train(const char* argv0) { return argv0 != nullptr && fs::path(argv0).filename() == kName; }

int run_ace_train(int argc, char** argv) {
  speak_as(kName, {});
  const std::vector<AceCommand> commands = ace_commands();
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--version") {
    write_out(fmt::format("{} (patina {})\n", kName, PATINA_VERSION));
    return 0;
  }
  std::string known;
  for (const AceCommand& command : commands) known += fmt::format("{}{}", known.empty() ? "" : ", ", command.ours.name);
  if (first == "--help" || first == "-h") {
    std::string text = fmt::format(
        "ace-train: patina {} in the words of another trainer\n\nUsage: ace-train COMMAND [OPTIONS]\n\nCommands:\n",
        PATINA_VERSION);
    for (const AceCommand& command : commands)
      text += fmt::format("  {:<17}{}\n", command.ours.name, command.ours.summary);
    write_out(text +
              "\nEach has a --help that says what its words become. Everything else is patina's: see patina --help.\n");
    return 0;
  }
  const int words = first == kSpike ? 2 : 1;
  const std::string name = words == 2 ? fmt::format("{} {}", kSpike, argc > 2 ? argv[2] : "") : std::string(first);
  const auto found = std::ranges::find(commands, name, [](const AceCommand& command) { return command.ours.name; });
  if (found == commands.end())
    fail(Error::Kind::kUsage, "{}; choose from {} (see ace-train --help, and patina --help for all else)",
         name.empty() ? "which command?" : fmt::format("\"{}\" is not a command", name), known);
  return run(*found, argc - words, argv + words);
}

}  // namespace patina
