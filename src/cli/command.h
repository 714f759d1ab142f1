// The commands of the program: one row of a table in main.cc and one file each.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <string_view>

namespace patina {

// A command parses its own flags, calls the library and prints. Returns the exit status; what it throws, main.cc
// prints.
struct Command {
  std::string_view name, summary;
  int (*run)(const Command& command, int argc, char** argv);  // argv[0] is the command's name
};

int run_inspect(const Command& command, int argc, char** argv);
int run_eval(const Command& command, int argc, char** argv);
int run_generate(const Command& command, int argc, char** argv);
int run_train_lm(const Command& command, int argc, char** argv);
int plan_train_lm(const Command& command, int argc, char** argv);  // of patina plan
int run_train_dit(const Command& command, int argc, char** argv);
int plan_train_dit(const Command& command, int argc, char** argv);  // of patina plan
int run_plan(const Command& command, int argc, char** argv);
int run_export(const Command& command, int argc, char** argv);
int run_merge(const Command& command, int argc, char** argv);
int run_convert(const Command& command, int argc, char** argv);
int run_gemmbench(const Command& command, int argc, char** argv);
int run_self_test(const Command& command, int argc, char** argv);

// The parser of a command: --help and --config are there already; unknown flags and unknown keys of a file are refused.
class CommandLine : public CLI::App {
 public:
  explicit CommandLine(const Command& command);
  // False where help was asked for, and printed. Error(kUsage) where the line is wrong.
  bool read(int argc, char** argv);
  // An option with its default in the help. `unit` names what the value is: "TOKENS", "FILE".
  template <typename T>
  CLI::Option* option(const std::string& name, T& value, const std::string& unit, const std::string& text) {
    return add_option(name, value, text)->type_name(unit)->capture_default_str();
  }
};

// A check that the help does not describe: the option's own text does.
inline CLI::Validator quiet(CLI::Validator check) { return check.description(""); }

// Checks of numbers, which must be finite: from `least` to `most`; above 0; 0 or more; above 0 and at most 1; a seed of
// 64 bits.
CLI::Validator between(double least, double most);
CLI::Validator above_zero();
CLI::Validator not_negative();
CLI::Validator fraction();
CLI::Validator seed_number();

}  // namespace patina
