// The options that say what adapter is trained.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "adapter/adapter.h"
#include "cli/command.h"

namespace patina {

struct AdapterFlags {
  std::string type = "lora", rank_pattern, alpha_pattern;
  int64_t rank = 16, lokr_dim = 16, lokr_factor = 8;
  float alpha = 32.0f, lokr_alpha = 0.0f;
  bool rslora = false, lokr_decompose_both = false;
  double dropout = 0.0;
  std::vector<const CLI::Option*> of_lora = {}, of_lokr = {};  // which not every type has
  std::vector<const CLI::Option*> of_fresh = {};               // which no adapter that is there already can have
  const CLI::Option *type_option = nullptr, *rank_option = nullptr, *alpha_option = nullptr, *dim_option = nullptr,
                    *lokr_alpha_option = nullptr;
};

void add_adapter_options(CommandLine& line, AdapterFlags& flags);

// What the flags come to. Error(kUsage) where one was given that the type does not have, or a pattern cannot be read.
AdapterOptions adapter_options(const AdapterFlags& flags, uint64_t seed);
// What they come to where the adapter is there already: what `sites` are, with the dropout of the flags. Patterns in
// the flags then name the sites that differ. Error(kUsage) naming the flag that says otherwise; `source` is the
// adapter's path.
AdapterOptions take_over(std::span<const AdaptedSite> sites, const std::string& source, AdapterFlags& flags);

// "lokr, dim 16, alpha 16, factor 8, dropout 0.05"
std::string describe(const AdapterFlags& flags, const AdapterOptions& options);

}  // namespace patina
