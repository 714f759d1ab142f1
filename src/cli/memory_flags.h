// --recompute, --weights and --memory: how a run fits into memory.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "train/fit.h"

namespace patina {

inline constexpr const char *kAuto = "auto", *kMapped = "mapped", *kStream = "stream";

struct MemoryFlags {
  std::string recompute = kAuto, weights = kAuto, memory;
};

void add_memory_options(CommandLine& line, MemoryFlags& flags);

// Segments that --recompute asks for: 0 for auto. Error(kUsage) where it is neither a known word nor a number.
int parse_recompute(const std::string& text, int layers);
// --memory, "2GiB" or "900 MB"; empty: 80 % of what is free beside what the process has. Error(kUsage).
int64_t memory_budget(const std::string& text);
// As the flag takes it: "off", "layer" or "3".
std::string recompute_flag(int segments, int layers);
// "off", "layer" or "3 segments".
std::string recompute_text(int segments, int layers);

}  // namespace patina
