// The program under its second name, ace-train: the commands of the trainer that its users come from, in their words
// (cli/ace_words.h), run as ours.
#pragma once

#include <string_view>

namespace patina {

// Whether the program was called by that name.
bool is_ace_train(const char* argv0);

// Puts the line into patina's words, says that on stderr, and runs it. Returns the exit status. Error(kUsage) for words
// that are not known, refused or out of range.
int run_ace_train(int argc, char** argv);

}  // namespace patina
