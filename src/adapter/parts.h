// The tensors that an adapted site consists of, and what each format of adapter files calls them. Inside the readers
// and writers of adapter files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"
#include "formats/names.h"
#include "formats/safetensors.h"
#include "tensor/tensor.h"

namespace patina {

enum class Part { kLoraA, kLoraB, kMagnitude, kW1, kW1A, kW1B, kW2, kW2A, kW2B, kAlpha };
enum class PartNames { kPeft, kLycoris, kGguf, kMlx };  // whose names

// What stands after the module's name, such as ".lora_A.weight"; empty where the format has no such part.
std::string_view part_suffix(Part part, PartNames names);
// The part that a tensor's name ends with; takes the suffix off the name.
std::optional<Part> take_part(std::string_view* tensor, PartNames names);

// A tensor of a file in F32. A matrix, a vector [n] or one number [].
struct PartValues {
  Shape shape;
  std::vector<float> values;
};

// The parts of a site on their way out, alpha not among them.
struct PartView {
  Part part;
  Shape shape;
  std::span<const float> values;
};
std::vector<PartView> parts_of(const AdaptedSite& site);
// The type that a part gets in a file whose factors are of type `factors`. A magnitude stays F32: it multiplies the
// whole weight, so that its rounding would be one of the weight, which may be far larger than the change.
DType part_type(Part part, DType factors);
// Values as they are stored. Error(kModel) where one of them is too large for the type.
std::vector<std::byte> encode_part(const std::string& tensor, std::span<const float> values, DType dtype);
// Adds a tensor to a file; without a copy where it is stored as it is, so `values` must stay until the file is written.
// Error(kModel) as encode_part().
void add_part(SafetensorsWriter* writer, const std::string& tensor, DType dtype, const Shape& shape,
              std::span<const float> values);

// InternalError where a site is not in the table of sites.
SitePlace place_of(const AdaptedSite& site);

// Collects the tensors of a file in any order and joins them, site by site.
class PartCollector {
 public:
  explicit PartCollector(const std::filesystem::path& file, PartNames names) : file_(file.string()), names_(names) {}

  // Decodes a tensor and keeps it; `data` may lie at any byte. Where its name tells no part or no place it is foreign,
  // which sites() refuses. Error(kModel) naming file and tensor where the part is there already, has too many
  // dimensions, no number at all, a type that cannot be decoded, or a number that is not finite.
  void add(const std::optional<Part>& part, const std::optional<SitePlace>& place, const std::string& tensor,
           DType dtype, const Shape& shape, const std::byte* data);
  // Sites by layer, then by the table of sites, lm_head last. Their alpha is the part, 0 where there is none; the dim
  // of a LoKr site whose factors are both whole is 0. Error(kModel) where a part has no partner or shapes do not fit;
  // and where tensors are foreign: then they are none of `what`, and `expected` follows "expected names such as".
  std::vector<AdaptedSite> sites(std::string_view what, const std::string& expected);

 private:
  struct Found {
    std::string tensor;
    PartValues values;
  };
  using Parts = std::map<Part, Found>;

  AdaptedSite lora(Parts& parts) const;
  AdaptedSite lokr(Parts& parts) const;
  KroneckerFactor factor(Parts& parts, Part whole, Part a, Part b, const std::string& beside) const;
  // `beside`: a tensor of the same layer, to name where the part is missing.
  Found take(Parts& parts, Part part, const std::string& beside) const;

  std::string file_;
  PartNames names_;
  std::vector<std::string> foreign_;
  std::map<std::pair<int, SiteName>, Parts> found_;  // by layer (lm_head: after all) and site
};

}  // namespace patina
