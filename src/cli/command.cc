#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "base/error.h"
#include "cli/console.h"
#include "cli/spelling.h"

namespace patina {

namespace {

// Reads the whole text as a number; the text after "expected" of a message where that is not possible or not accepted.
template <typename Number>
CLI::Validator number(const std::string& expected, std::function<bool(Number)> accepted) {
  return CLI::Validator(
      [expected, accepted](std::string& text) -> std::string {
        Number value{};
        const char* begin = text.data() + (text.size() > 1 && text[0] == '+' ? 1 : 0);
        const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && accepted(value)) return "";
        return fmt::format("expected {}, found {}", expected, text);
      },
      "");
}

// "--layers" of "--layers" and of "--layers=2"; empty for what is no long option.
std::string_view option_of(std::string_view argument) {
  return argument.starts_with("--") ? argument.substr(0, argument.find('=')) : std::string_view();
}

std::string given_twice(int argc, char** argv) {
  std::set<std::string_view> seen;
  for (int i = 1; i < argc; ++i)
    if (const std::string_view option = option_of(argv[i]); !option.empty() && !seen.insert(option).second)
      return std::string(option);
  return "";
}

// Whether the mistake lies in the file of --config: it is about the file's form, or names an option that the line
// itself does not give.
bool in_config(const CLI::ParseError& error, int argc, char** argv) {
  if (dynamic_cast<const CLI::ConfigError*>(&error) != nullptr) return true;
  if (dynamic_cast<const CLI::ValidationError*>(&error) == nullptr &&
      dynamic_cast<const CLI::ConversionError*>(&error) == nullptr &&
      dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr)
    return false;
  const std::string_view text = error.what();
  return std::none_of(argv + 1, argv + argc, [&](const char* argument) {
    const std::string_view option = option_of(argument);
    return !option.empty() && option != "--config" && text.find(option) != std::string_view::npos;
  });
}

}  // namespace

CLI::Validator between(double least, double most) {
  return number<double>(fmt::format("a number from {} to {}", least, most),
                        [=](double value) { return value >= least && value <= most; });
}

CLI::Validator above_zero() {
  return number<double>("a number above 0", [](double value) { return std::isfinite(value) && value > 0.0; });
}

CLI::Validator not_negative() {
  return number<double>("a number, 0 or more", [](double value) { return std::isfinite(value) && value >= 0.0; });
}

CLI::Validator fraction() {
  return number<double>("a number above 0 and at most 1", [](double value) { return value > 0.0 && value <= 1.0; });
}

CLI::Validator seed_number() {
  return number<uint64_t>("a whole number from 0 to 18446744073709551615", [](uint64_t) { return true; });
}

CommandLine::CommandLine(const Command& command)
    : CLI::App(std::string(command.summary), fmt::format("{} {}", program_name(), command.name)) {
  set_help_flag("-h,--help", "Print this help.");
  set_config("--config", "", "Read flags from a file: a line \"batch-tokens = 4096\" for each, in INI or TOML form.")
      ->type_name("FILE");
  allow_config_extras(CLI::config_extras_mode::error);
  // Commas and blanks of a value are its own: no option takes a list, and "q,v" is one value.
  get_config_formatter_base()->arrayDelimiter('\x1f');
  get_formatter()->column_width(34);
}

bool CommandLine::read(int argc, char** argv) {
  // An unset variable of a script must not pass for an option that was not given.
  const CLI::Validator something(
      [](std::string& text) { return text.empty() ? std::string("expected a value, found nothing") : std::string(); },
      "");
  for (CLI::Option* option : get_options())
    if (option->get_items_expected_max() > 0) option->check(something);
  try {
    parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    write_out(help());
    return false;
  } catch (const CLI::ParseError& error) {
    const std::string twice = given_twice(argc, argv);
    if (!twice.empty() && dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
      fail(Error::Kind::kUsage, "{} was given twice (see {} --help)", twice, get_name());
    const std::string file = get_config_ptr()->empty() ? "" : get_config_ptr()->as<std::string>();
    if (!file.empty() && in_config(error, argc, argv))
      fail(Error::Kind::kUsage, "{}: {} (see {} --help)", file, error.what(), get_name());
    fail(Error::Kind::kUsage, "{} (see {} --help)", error.what(), get_name());
  }
  return true;
}

}  // namespace patina
