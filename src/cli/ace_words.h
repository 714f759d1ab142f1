// The words of the command line that ace-train's users know, and what each becomes here: one table a command. The help,
// docs/ace-train.md and the rewriting (cli/ace_train.h) all come from it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace patina {

struct AceWord {
  // What becomes of a value that `values` does not list.
  enum class Rest : uint8_t {
    kAsIs,     // it goes behind `ours`
    kSwitch,   // `ours` alone
    kRatio,    // behind `ours`, at most one half: more is the same by the law of the warm-up
    kNone,     // there is none: it is refused
    kFolder,   // where names of models are looked up
    kModel,    // a path, or a name in that folder: its path goes behind `ours`
    kRefused,  // as every value is, for the reason in `text`
  };
  // When the default is written into the line of ours, because that has another one.
  enum class Written : uint8_t { kNever, kAlways, kForLokr, kForMuon };

  std::string word;           // "--ckpt"
  std::string unit = {};      // "N"; empty: a switch, whose values are "on" and, where it has a --no-, "off"
  std::string standard = {};  // the default; empty: none
  std::string ours = {};      // "--recompute"; empty: nothing of ours
  Rest rest = Rest::kAsIs;
  std::vector<std::pair<std::string, std::string>> values = {};  // {"0", "--recompute off"}; {"f32", ""} is left out
  double least = 0.0, most = 0.0;                                // of other values, whole numbers, where most > least
  std::string text = {};                                         // what else there is to say
  Written written = Written::kNever;
  bool negatable = false;  // --no-... is there too
  bool many = false;       // may be given more than once
  bool noted = false;      // `text` is said where it is given
};

// What the table makes of a word, for people: "0: --recompute off; 1: --recompute auto; 2 to 32: --recompute N".
std::string becomes(const AceWord& word);

std::vector<AceWord> dit_words();
std::vector<AceWord> lm_words();
std::vector<AceWord> gemmbench_words();

}  // namespace patina
