// The fingerprint that ties adapters, checkpoints and caches to the frozen model they belong to.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "tensor/tensor.h"

namespace patina {

struct NamedTensorBytes {
  std::string_view name;  // canonical: the GGUF tensor name
  std::string_view type;  // as GGUF tools print it: "Q4_K"
  Shape shape;            // outermost first
  std::span<const std::byte> bytes;
};

// SHA-256, as 64 hex digits, over one line for every tensor, sorted by the bytes of the name:
//     <length of name>:<name> <type> <dims joined by "x"> <hex SHA-256 of the first and then the last 64 KiB>\n
// (each of the two is the whole tensor where it is shorter). The order of the tensors, and how files hold them, do not
// matter. This layout ends up in files and never changes.
std::string model_fingerprint(std::span<const NamedTensorBytes> tensors);
std::string model_fingerprint(const GgufFile& file);

}  // namespace patina
