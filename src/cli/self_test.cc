// patina self-test, and --self-test of the commands that train: proves this build on synthetic models.
#include "cli/self_test.h"

#include <algorithm>

#include "cli/common.h"
#include "cli/console.h"
#include "cli/lists.h"
#include "cli/self_test_report.h"

namespace patina {

namespace {

constexpr const char* kFooter =
    "Each rung measures something and compares it with a bar; a line shows the worst of all types and formulations. "
    "Nothing is downloaded or kept. The rungs one by one: docs/self-test.md.";

struct Flags {
  std::string only, bwd, type;
  int threads = 1;
  bool jsonl = false;
};

int run(std::span<const Subject> subjects, const SelfTestOptions& options, const Flags& flags) {
  ThreadPool pool(flags.threads);
  EventWriter events(flags.jsonl);
  const auto print = [&](const std::string& text) { flags.jsonl ? say(text) : write_out(text); };
  std::vector<RungRow> of_rung;  // rows of the rung that runs
  int64_t rungs = 0, rows = 0, failed = 0, copies = 0;
  double ms = 0;
  const auto end_rung = [&] {
    if (of_rung.empty()) return;
    print(rung_text(of_rung));
    ++rungs;
    of_rung.clear();
  };
  check_only(subjects, options.only);
  print(self_test_head());
  run_self_test(subjects, options, parts_in_use(), pool, [&](const RungRow& row) {
    if (!of_rung.empty() && (of_rung[0].rung != row.rung || of_rung[0].subject != row.subject)) end_rung();
    of_rung.push_back(row);
    events.write("rung", rung_event(row));
    ++rows;
    failed += row.passed ? 0 : 1;
    copies += row.is_copy ? 1 : 0;
    ms += row.ms;
  });
  end_rung();
  print(self_test_tail(rungs, rows, failed, copies, ms));
  events.write("selfTest", {{"rungs", rungs}, {"rows", rows}, {"failed", failed}, {"copies", copies}, {"ms", ms}});
  return failed == 0 ? 0 : 1;
}

// "--lr" of "--lr" and of "--lr=1"; what is no long option itself.
std::string option_of(std::string_view argument) {
  return std::string(argument.starts_with("--") ? argument.substr(0, argument.find('=')) : argument);
}

}  // namespace

bool asks_for_self_test(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const char* argument) { return std::string_view(argument) == kSelfTestFlag; });
}

void refuse_self_test(const CLI::Option& self_test, std::string_view command) {
  if (self_test.count() > 0)
    fail(Error::Kind::kUsage, "{0}: goes with patina {1} itself, not with plan or a file of flags; run patina {1} {0}",
         kSelfTestFlag, command);
}

int run_self_test_command(const Command& command, std::span<const Subject> subjects, const char* flag, int argc,
                          char** argv) {
  Flags flags;
  bool asked = false;
  CommandLine line(command);
  line.footer(kFooter);
  if (flag != nullptr) line.add_flag(flag, asked, "Run these checks instead of training.");
  line.add_option("--only", flags.only, "Rungs to run, with commas; the default is all.")->type_name("LIST");
  line.add_option("--bwd", flags.bwd,
                  "Formulations of the gradient through frozen weights, with commas; the default is fused,mm,outprod.")
      ->type_name("LIST");
  line.add_option(
          "--type", flags.type,
          "Types of the weights, with commas; the default is F32,BF16,Q8_0,Q4_K, and every type for the product.")
      ->type_name("LIST");
  add_threads_option(line, flags.threads);
  line.add_flag("--jsonl", flags.jsonl, "Print an event for every row on stdout, one JSON object a line.");
  if (flag != nullptr) line.allow_extras();
  if (!line.read(argc, argv)) return 0;
  if (const std::vector<std::string> extras = line.remaining(); !extras.empty())
    fail(Error::Kind::kUsage,
         "{} beside {}: a self-test trains nothing and takes --only, --bwd, --type, --threads and "
         "--jsonl; leave {} out",
         option_of(extras.front()), flag, option_of(extras.front()));
  SelfTestOptions options;
  if (!flags.only.empty()) options.only = read_words("--only", flags.only);
  if (!flags.bwd.empty()) options.formulations = read_formulations("--bwd", flags.bwd);
  if (!flags.type.empty()) options.types = read_types("--type", flags.type);
  return run(subjects, options, flags);
}

int run_self_test(const Command& command, int argc, char** argv) {
  const Subject subjects[] = {product_subject(), lm_subject(), dit_subject()};
  return run_self_test_command(command, subjects, nullptr, argc, argv);
}

}  // namespace patina
