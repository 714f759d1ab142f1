// The formats of adapter files, one file each, behind adapter/files.h.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "adapter/files.h"
#include "adapter/parts.h"
#include "formats/safetensors.h"

namespace patina {

AdapterFile read_peft(const std::filesystem::path& config, const std::filesystem::path& weights,
                      const AdapterBase& base);
AdapterFile read_mlx(const std::filesystem::path& config, const std::filesystem::path& weights);
AdapterFile read_lycoris(const std::filesystem::path& path, const AdapterBase& base);
bool is_lycoris(const SafetensorsFile& file);
AdapterFile read_gguf_lora(const std::filesystem::path& path, const AdapterBase& base);

void write_peft(const std::filesystem::path& directory, const AdapterFile& adapter, const AdapterBase& base,
                DType dtype);
void write_lycoris(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base, DType dtype);
void write_gguf_lora(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base,
                     DType dtype);

std::string peft_obstacle(std::span<const AdaptedSite> sites);
std::string gguf_obstacle(std::span<const AdaptedSite> sites);

// The prefix of our own metadata keys.
inline constexpr std::string_view kOwnMetadata = "patina.";
std::map<std::string, std::string> own_metadata(const SafetensorsFile& file);
void write_own_metadata(const AdapterFile& adapter, SafetensorsWriter* writer);

// Where a refusal sends people whose adapter a format cannot hold.
inline constexpr std::string_view kMergeInstead = "merge it into its base with patina merge";

}  // namespace patina
