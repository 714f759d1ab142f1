// What an adapter is, for people and for flags that must agree with it.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapted_site.h"

namespace patina {

struct AdapterFacts {
  std::set<std::string> kinds;     // "lora", "dora", "lokr"
  std::set<int64_t> ranks;         // of LoKr: its dims
  std::set<float> alphas;          //
  std::set<int> layers;            // lm_head not among them
  std::vector<std::string> sites;  // "q", in the order of the file
  std::set<std::string> lokr;      // "w1 [4, 6] whole, w2 [8, 12] low-rank"
  int64_t lokr_factor = 0;         // the --lokr-factor that gives factors of these shapes; 0: no single one does
  bool lokr_decompose_both = false;
  int64_t parameters = 0;
};
AdapterFacts adapter_facts(std::span<const AdaptedSite> sites);

}  // namespace patina
