// The numbers of a site that is adapted by LoRA.
#pragma once

#include "adapter/adapted_site.h"

namespace patina::testing {

inline const LoraFactors& lora(const AdaptedSite& site) { return std::get<LoraFactors>(site.factors); }
inline LoraFactors& lora(AdaptedSite& site) { return std::get<LoraFactors>(site.factors); }

}  // namespace patina::testing
