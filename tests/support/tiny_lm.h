// A tiny model loaded, and adapters for it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "adapter/adapter.h"
#include "base/philox.h"
#include "model/decoder_model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace patina::testing {

class TinyLm {
 private:
  TempDir directory_;

 public:
  explicit TinyLm(const TinyModel& options = {})
      : path(directory_.path() / "model.gguf"), model(DecoderModel::load((write_tiny_model(path, options), path))) {}

  const std::filesystem::path& directory() const { return directory_.path(); }

  const std::filesystem::path path;
  const DecoderModel model;
};

// All seven sites of all layers, or those named.
inline std::vector<Site> layer_sites(const DecoderModel& model,
                                     const std::set<std::string>& names = {"q", "k", "v", "o", "gate", "up", "down"}) {
  return select_sites(model.sites(), names, 0);
}

// An adapter in the middle of its training: B is no longer zero, so that A has gradients too.
inline std::unique_ptr<Adapter> half_trained(std::span<const Site> sites, int64_t rank = 2) {
  auto adapter = std::make_unique<Adapter>(
      sites, AdapterOptions{.rank = rank, .alpha = 2.0f * static_cast<float>(rank), .seed = 1});
  ParameterStore& store = adapter->parameters();
  for (size_t i = 0; i < store.slices().size(); ++i) {
    if (!store.slices()[i].name.ends_with("lora_b")) continue;
    const RandomStream random(1, RandomUse::kTest, static_cast<uint32_t>(i));
    for (int64_t j = 0; j < store.slices()[i].shape.elements(); ++j)
      store.value(i)[j] = static_cast<float>(0.2 * random.normal(static_cast<uint64_t>(j)));
  }
  return adapter;
}

}  // namespace patina::testing
