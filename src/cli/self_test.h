// The self-test as commands run it.
#pragma once

#include <span>

#include "cli/command.h"
#include "selftest/self_test.h"

namespace patina {

// Reads the flags of a self-test and runs it. `flag`: the one that asked a command of training for it, which takes no
// other flags beside it; empty for the command whose purpose it is.
int run_self_test_command(const Command& command, std::span<const Subject> subjects, const char* flag, int argc,
                          char** argv);
// Whether a command line asks for its self-test.
bool asks_for_self_test(int argc, char** argv);
// Error(kUsage) where the flag of a command that trains was given to plan or in a file of flags.
void refuse_self_test(const CLI::Option& self_test, std::string_view command);

inline constexpr const char* kSelfTestFlag = "--self-test";
inline constexpr const char* kSelfTestHelp =
    "Check this build on synthetic models instead of training; takes --only, --bwd, --type, --threads and --jsonl "
    "(patina self-test --help).";

}  // namespace patina
