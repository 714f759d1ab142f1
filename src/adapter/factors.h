// Inside the readers and writers of adapter files: the two factors of each site on their way in, names on their way
// out.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/files.h"
#include "formats/names.h"
#include "tensor/tensor.h"

namespace patina {

// The readers behind read_adapter().
AdapterFile read_peft(const std::filesystem::path& config_path, const std::filesystem::path& weights_path);
AdapterFile read_gguf_lora(const std::filesystem::path& path, const AdapterBase& base);

// The prefix of our own metadata keys.
inline constexpr std::string_view kOwnMetadata = "patina.";

// InternalError where a site is not in the table of sites.
SitePlace place_of(const AdaptedSite& site);
// The factors of a site that is plain LoRA; InternalError where it is not.
const LoraFactors& lora_of(const AdaptedSite& site);

// Collects factors in any order and joins them, site by site.
class FactorCollector {
 public:
  enum Factor { kA = 0, kB = 1 };
  explicit FactorCollector(const std::filesystem::path& file) : file_(file.string()) {}

  // Decodes one factor. Error(kModel) where it is there already, is not a matrix or holds a number that is not finite.
  void add(const SitePlace& place, Factor factor, const std::string& tensor, DType dtype, const Shape& shape,
           const std::byte* data);
  // Sites in order, alpha still 0. Error(kModel) where a factor has no partner or their ranks differ.
  std::vector<AdaptedSite> sites();

 private:
  struct Matrix {
    std::string tensor;  // empty: not there
    Shape shape;
    std::vector<float> values;
  };
  std::string file_;
  std::map<std::pair<int, SiteName>, std::array<Matrix, 2>> found_;  // by layer (lm_head: after all) and site
};

}  // namespace patina
