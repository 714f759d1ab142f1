// patina: trains small adapters on large frozen models. This file finds the command and turns errors into one line and
// an exit status: 0 done, 1 the run failed, 2 the command line was wrong, 128 + signal after an interrupt.
#include <array>
#include <new>

#include "base/error.h"
#include "cli/ace_train.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/spelling.h"

namespace patina {

namespace {

constexpr int kRunFailed = 1, kUsageWrong = 2;

constexpr std::array kCommands = {
    Command{"inspect", "Show what a model file or an adapter holds.", run_inspect},
    Command{"eval", "Measure the loss and perplexity of a model on a data set.", run_eval},
    Command{"generate", "Answer a prompt.", run_generate},
    Command{"train-lm", "Train an adapter of a language model: LoRA, DoRA or LoKr.", run_train_lm},
    Command{"train-dit", "Train an adapter of the ACE-Step music diffusion transformer: LoRA, DoRA or LoKr.",
            run_train_dit},
    Command{"plan", "Tell what a run of train-lm or train-dit would take: memory, steps, time.", run_plan},
    Command{"export", "Write an adapter in another format.", run_export},
    Command{"merge", "Write a model file with an adapter in its weights.", run_merge},
    Command{"convert", "Write a model file in another type.", run_convert},
    Command{"gemmbench", "Measure the frozen products on this machine, beside OpenBLAS.", run_gemmbench},
    Command{"self-test", "Prove this build on synthetic models: gradients, adapters, files, training.", run_self_test},
};

void print_help() {
  std::string text = fmt::format(
      "patina {}: trains small adapters on large frozen models\n\nUsage: patina COMMAND [OPTIONS]\n\nCommands:\n",
      PATINA_VERSION);
  for (const Command& command : kCommands) text += fmt::format("  {:<10}{}\n", command.name, command.summary);
  write_out(text +
            "\nOptions:\n  -h,--help   Print this help, or after a command the help of that command.\n"
            "  --version   Print the version.\n");
}

int dispatch(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "--version") {
    if (argc > 2)
      fail(Error::Kind::kUsage, "{} stands alone; found \"{}\" after it (see patina --help)", name, argv[2]);
    if (name == "--version")
      write_out(fmt::format("patina {}\n", PATINA_VERSION));
    else
      print_help();
    return 0;
  }
  std::string known;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(command, argc - 1, argv + 1);
    known += (known.empty() ? "" : ", ") + std::string(command.name);
  }
  if (name.empty()) fail(Error::Kind::kUsage, "which command? choose from {} (see patina --help)", known);
  fail(Error::Kind::kUsage, "\"{}\" is not a command; choose from {} (see patina --help)", name, known);
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto report = [](int status, std::string_view text) {
    say("{}: {}\n", program_name(), text);
    return status;
  };
  try {
    const int status = is_ace_train(argv[0]) ? run_ace_train(argc, argv) : dispatch(argc, argv);
    if (status == 0) check_out();  // events that were lost: the run itself is done
    return status;
  } catch (const Error& error) {
    return report(error.kind() == Error::Kind::kUsage ? kUsageWrong : kRunFailed, spelled(error.what()));
  } catch (const std::bad_alloc&) {
    return report(kRunFailed, "out of memory; lower --micro-tokens or --context (gemmbench: --seq)");
  } catch (const std::exception& error) {
    return report(kRunFailed, fmt::format("a fault of patina {} itself, please report it with the command line: {}",
                                          PATINA_VERSION, error.what()));
  }
}

}  // namespace patina

int main(int argc, char** argv) {
  patina::prepare_streams();
  patina::clean_up_on_signals();
  return patina::run_program(argc, argv);
}
