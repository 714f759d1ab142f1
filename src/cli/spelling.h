// In which words the program speaks to its user. It has a second name with flags of its own (cli/ace_train.h); the
// commands name theirs, and what they say about them is put into the user's words here.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace patina {

// A flag of ours and what the user calls it.
struct Spelling {
  std::string ours, theirs;                                 // "--recompute", "--ckpt"
  std::vector<std::pair<std::string, std::string>> values;  // "auto" behind it is written "--ckpt 1" in all
  bool numbers;  // whether other numbers may stand behind his word; else flag and number stay
};

// "patina", or the name it was called by.
std::string_view program_name();
// Once, before anything is said.
void speak_as(std::string program, std::vector<Spelling> spellings);

// A message with every flag of ours in the user's words; the same where he speaks ours.
std::string spelled(std::string_view message);

}  // namespace patina
