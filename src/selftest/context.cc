#include "selftest/context.h"

#include "backend/cpu/cpu_backend.h"

namespace patina {

TestedParts parts_in_use() {
  return {&cpu_backend(),
          [](std::span<const Site> sites, const AdapterOptions& options) {
            return std::make_unique<Adapter>(sites, options);
          },
          make_optimizer,
          clip,
          learning_rate,
          [](int64_t out, int64_t in, int64_t dim, float alpha, int64_t factor, bool both) {
            return lokr_shape(out, in, dim, alpha, factor, both);
          },
          [](MicroBatch& batch, std::span<const Sequence> sequences, std::span<const size_t> which) {
            fill(batch, sequences, which);
          },
          [](AdapterFormat format, const std::filesystem::path& path, const AdapterFile& file,
             const AdapterBase& base) { write_adapter(format, path, file, base); },
          draw_flow,
          weigh_draws,
          [](FlowBatch& batch, std::span<const Song> songs, std::span<const FlowDraw> draws, const FlowLayout& layout) {
            fill(batch, songs, draws, layout);
          }};
}

const TrainableModel& RungContext::model() {
  std::unique_ptr<TrainableModel>& model = models_[dtype];
  if (model == nullptr) model = make_model_(dtype, directory_.path(), pool);
  return *model;
}

}  // namespace patina
