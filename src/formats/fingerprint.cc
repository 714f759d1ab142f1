#include "formats/fingerprint.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"

namespace patina {

std::string model_fingerprint(std::span<const NamedTensorBytes> tensors) {
  constexpr size_t kEndBytes = 64 * 1024;
  std::vector<const NamedTensorBytes*> sorted;
  for (const NamedTensorBytes& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, &NamedTensorBytes::name);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &NamedTensorBytes::name);
  PATINA_CHECK(twice == sorted.end(), "tensor {} appears twice", (*twice)->name);

  Sha256 model;
  for (const NamedTensorBytes* tensor : sorted) {
    Sha256 ends;
    const size_t end_bytes = std::min(kEndBytes, tensor->bytes.size());
    ends.update(tensor->bytes.first(end_bytes));
    ends.update(tensor->bytes.last(end_bytes));
    std::string line = fmt::format("{}:{} {} ", tensor->name.size(), tensor->name, tensor->type);
    for (int axis = 0; axis < tensor->shape.rank(); ++axis) {
      if (axis > 0) line += 'x';
      line += fmt::to_string(tensor->shape[axis]);
    }
    line += fmt::format(" {}\n", ends.hex_digest());
    model.update(line);
  }
  return model.hex_digest();
}

std::string model_fingerprint(const GgufFile& file) {
  std::vector<NamedTensorBytes> tensors;
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back(
        {tensor.name, name(tensor.dtype), tensor.shape, {tensor.data, static_cast<size_t>(tensor.bytes)}});
  return model_fingerprint(tensors);
}

}  // namespace patina
