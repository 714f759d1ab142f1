#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "adapter/files.h"
#include "base/sha256.h"

namespace patina {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "1";
constexpr const char* kTextKey = "patina.run";
constexpr const char* kSumKey = "patina.sha256";
constexpr std::string_view kParameter = "parameter.", kOptimizer = "optimizer.";
constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors", kUnfinished = ".tmp";

// The one list of what a state consists of: field(name, value) for each.
template <typename State, typename Field>
void for_each_field(State& state, Field field) {
  field("steps", state.steps);
  field("epoch", state.epoch);
  field("stepInEpoch", state.step_in_epoch);
  field("lossSum", state.loss_sum);
  field("weightSum", state.weight_sum);
  field("epochMs", state.epoch_ms);
  field("ms", state.ms);
  field("epochLosses", state.epoch_losses);
  field("bestLoss", state.best_loss);
  field("badSteps", state.bad_steps);
  field("zeroSteps", state.zero_steps);
  field("bestValidation", state.best_validation);
  field("bestStep", state.best_step);
  field("staleValidations", state.stale_validations);
}

// Numbers come back to the bit: they are written with as many digits as that takes.
Json to_json(const TrainState& state) {
  Json json = Json::object();
  for_each_field(state, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

TrainState state_from(const Json& json) {
  TrainState state;
  for_each_field(state, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  return state;
}

// Over the text and, in the order of their names, the tensors.
class Sum {
 public:
  explicit Sum(std::string_view text) { add("", std::as_bytes(std::span(text))); }
  void add(std::string_view name, std::span<const std::byte> bytes) {
    sha_.update(fmt::format("{}:{} {}\n", name.size(), name, bytes.size()));
    sha_.update(bytes);
  }
  std::string digest() { return sha_.hex_digest(); }

 private:
  Sha256 sha_;
};

}  // namespace

int64_t write_checkpoint(const fs::path& path, const ParameterStore& store, Optimizer& optimizer,
                         const CheckpointText& text) {
  const Json json = {{"state", to_json(text.state)},
                     {"optimizerSteps", optimizer.steps()},
                     {"settings", text.settings},
                     {"session", text.session}};
  const std::string dumped = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::map<std::string, std::span<const std::byte>> tensors;
  SafetensorsWriter writer;
  const auto add = [&](std::string name, const Shape& shape, std::span<const float> values) {
    tensors[name] = std::as_bytes(values);
    writer.add_view(std::move(name), DType::kF32, shape, std::as_bytes(values));
  };
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const ParameterStore::Slice& slice = store.slices()[i];
    add(std::string(kParameter) + slice.name, slice.shape,
        {store.value(i), static_cast<size_t>(slice.shape.elements())});
  }
  for (const Optimizer::State& state : optimizer.state())
    if (!state.values.empty())
      add(std::string(kOptimizer).append(state.name), Shape{std::ssize(state.values)}, state.values);
  Sum sum(dumped);
  for (const auto& [name, bytes] : tensors) sum.add(name, bytes);
  writer.set_metadata(kCheckpointKey, kFormat);
  writer.set_metadata(kTextKey, dumped);
  writer.set_metadata(kSumKey, sum.digest());
  writer.write(path);
  return static_cast<int64_t>(fs::file_size(path));
}

Checkpoint::Checkpoint(const fs::path& path) : file_(SafetensorsFile::open(path)) {
  const auto value = [&](const char* key) {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end())
      fail(Error::Kind::kModel, "{}: is no checkpoint: it has no {}", path.string(), key);
    return found->second;
  };
  if (value(kCheckpointKey) != kFormat)
    fail(Error::Kind::kModel, "{}: is a checkpoint of format {}, this program reads {}; use the program that wrote it",
         path.string(), value(kCheckpointKey), kFormat);
  const std::string dumped = value(kTextKey);
  Sum sum(dumped);
  for (const SafetensorsTensor& tensor : file_.tensors())
    sum.add(tensor.name, {tensor.data, static_cast<size_t>(tensor.bytes)});
  if (sum.digest() != value(kSumKey))
    fail(Error::Kind::kModel, "{}: the checksum does not fit: the file is damaged", path.string());
  try {
    const Json json = Json::parse(dumped);
    text_ = {state_from(json.at("state")), json.at("settings"), json.at("session")};
    optimizer_steps_ = json.at("optimizerSteps");
  } catch (const nlohmann::json::exception& error) {
    fail(Error::Kind::kModel, "{}: is no checkpoint of this program: {}", path.string(), error.what());
  }
}

void Checkpoint::copy(const std::string& name, std::span<float> to) const {
  const SafetensorsTensor* tensor = file_.find(name);
  if (tensor == nullptr || tensor->dtype != DType::kF32 || tensor->bytes != static_cast<int64_t>(to.size_bytes()))
    fail(Error::Kind::kModel, "{}: expected {} F32 numbers as {}, found {}", path().string(), to.size(), name,
         tensor == nullptr ? "none" : tensor->shape.str());
  std::memcpy(to.data(), tensor->data, to.size_bytes());
}

void Checkpoint::restore_parameters(ParameterStore& store) const {
  for (size_t i = 0; i < store.slices().size(); ++i)
    copy(std::string(kParameter) + store.slices()[i].name,
         {store.value(i), static_cast<size_t>(store.slices()[i].shape.elements())});
}

void Checkpoint::restore_optimizer(Optimizer& optimizer) const {
  for (const Optimizer::State& state : optimizer.state())
    if (!state.values.empty()) copy(std::string(kOptimizer).append(state.name), state.values);
  optimizer.set_steps(optimizer_steps_);
}

fs::path CheckpointDirectory::file(int64_t step) const {
  return path_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

std::vector<int64_t> CheckpointDirectory::steps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    int64_t step = 0;
    const char* const last = name.data() + name.size() - kSuffix.size();
    const auto [rest, wrong] = std::from_chars(name.data() + kPrefix.size(), last, step);
    if (wrong == std::errc() && rest == last) steps.push_back(step);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail(Error::Kind::kIo, "{}: cannot be read: {}; check its permissions", path_.string(), error.message());
  std::ranges::sort(steps, std::greater{});
  return steps;
}

void CheckpointDirectory::prune(int64_t keep, int64_t best_step) const {
  std::error_code ignored;
  for (const int64_t step : steps())
    if (keep > 0)
      --keep;
    else if (step != best_step)
      fs::remove(file(step), ignored);
}

void CheckpointDirectory::remove_unfinished() const {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(path_, ignored), end; !ignored && entry != end; entry.increment(ignored))
    if (entry->path().filename().string().ends_with(kUnfinished)) found.push_back(entry->path());
  for (const fs::path& path : found) fs::remove(path, ignored);
}

}  // namespace patina
