// patina plan: what a command that trains would take, and nothing trained.
#include <fmt/ranges.h>

#include <map>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"

namespace patina {

namespace {

const std::map<std::string_view, int (*)(const Command&, int, char**)> kPlanned = {{"train-dit", plan_train_dit},
                                                                                   {"train-lm", plan_train_lm}};

}  // namespace

int run_plan(const Command& command, int argc, char** argv) {
  std::vector<std::string_view> names;
  for (const auto& [name, run] : kPlanned) names.push_back(name);
  const std::string known = fmt::format("{}", fmt::join(names, " or "));
  const std::string_view asked = argc > 1 ? argv[1] : "";
  if (asked == "--help" || asked == "-h") {
    write_out(
        fmt::format("{}\n\nUsage: patina plan {} [OPTIONS]\n\nThe options are those of patina {}; --out is not "
                    "needed, and nothing is trained or written.\n",
                    command.summary, known, known));
    return 0;
  }
  const auto found = kPlanned.find(asked);
  if (found == kPlanned.end())
    fail(Error::Kind::kUsage, "plan which command? expected {}, found \"{}\" (see patina plan --help)", known, asked);
  const std::string name = "plan " + std::string(asked);
  return found->second({name, command.summary, command.run}, argc - 1, argv + 1);
}

}  // namespace patina
