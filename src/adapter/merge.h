// An adapter written into the weights of a model file.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapted_site.h"
#include "adapter/files.h"
#include "base/threads.h"
#include "formats/gguf.h"

namespace patina {

struct MergeOptions {
  double weight = 1.0;              // the change of every weight is multiplied by it
  std::optional<DType> dtype = {};  // of adapted tensors; none: merged_type()
};

// How much of a wanted change the stored numbers hold. Squared norms and product of the two changes.
struct Retention {
  double wanted = 0.0, realised = 0.0, product = 0.0;
  double cosine() const;  // 0 where either is zero
  double energy() const;  // |realised|^2 / |wanted|^2
  Retention& operator+=(const Retention& other);
};

struct MergedTensor {
  std::string name;
  DType before, after;
  Retention retention;
};

// The type of an adapted tensor where none is asked for: its own where that holds small changes (F32, F16, BF16, Q8_0),
// else F16, because types of 6 bits and less swallow much of an adapter.
DType merged_type(DType dtype);

// Writes `model` with the change of every site added to its weight, to `path`. Other tensors and all metadata but
// general.file_type stay as they are, bit for bit. Memory is a few rows. Sites must fit the model. Error(kModel) where
// the new weights would be the old ones, or a number becomes too large for its type; then no file is written.
std::vector<MergedTensor> merge_adapter(const GgufFile& model, std::span<const AdaptedSite> sites,
                                        const AdapterBase& base, const MergeOptions& options,
                                        const std::filesystem::path& path, ThreadPool& pool);

}  // namespace patina
