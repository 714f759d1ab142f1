// One adapter of every kind, with and without dropout.
#pragma once

#include <string>
#include <vector>

#include "adapter/adapter.h"

namespace patina::testing {

struct Kind {
  std::string name;
  AdapterOptions options;
};

inline std::vector<Kind> kinds() {
  return {{"lora", {.rank = 4, .alpha = 8, .seed = 1}},
          {"dora", {.kind = AdapterKind::kDora, .rank = 4, .alpha = 8, .seed = 1}},
          {"lokr", {.kind = AdapterKind::kLokr, .rank = 4, .alpha = 8, .factor = 4, .seed = 1}},
          {"lokr whole", {.kind = AdapterKind::kLokr, .rank = 1000, .alpha = 8, .factor = 8, .seed = 1}},
          {"lokr both", {.kind = AdapterKind::kLokr, .rank = 2, .factor = -1, .decompose_both = true, .seed = 1}},
          {"lora dropout", {.rank = 4, .alpha = 8, .dropout = 0.25, .seed = 1}},
          {"dora dropout", {.kind = AdapterKind::kDora, .rank = 4, .alpha = 8, .dropout = 0.25, .seed = 1}},
          {"lokr dropout", {.kind = AdapterKind::kLokr, .rank = 4, .factor = 4, .dropout = 0.25, .seed = 1}}};
}

}  // namespace patina::testing
