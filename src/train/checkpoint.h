// Checkpoints: everything that a run needs to go on to the very bit, in one safetensors file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/safetensors.h"
#include "train/trainer.h"

namespace patina {

// What a checkpoint says beside numbers. The trainer knows its own state; the other two belong to the caller.
struct CheckpointText {
  TrainState state;
  nlohmann::ordered_json settings;  // of the run, as far as they decide its result
  nlohmann::ordered_json session;   // what the caller wants back: where its logs stand
};

// Writes the parameters (tensors named as in the store), the optimizer's state and the text, with a SHA-256 over all of
// it. Atomic: under another name, synced, renamed. Returns the file's bytes. Error(kIo).
int64_t write_checkpoint(const std::filesystem::path& path, const ParameterStore& store, Optimizer& optimizer,
                         const CheckpointText& text);

// An opened checkpoint whose every byte was checked.
class Checkpoint {
 public:
  // Error(kModel) naming the file where it is damaged or no checkpoint.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const CheckpointText& text() const { return text_; }
  // Error(kModel) where the parameters are others than those of the checkpoint.
  void restore_parameters(ParameterStore& store) const;
  void restore_optimizer(Optimizer& optimizer) const;

 private:
  void copy(const std::string& name, std::span<float> to) const;

  SafetensorsFile file_;
  CheckpointText text_;
  int64_t optimizer_steps_ = 0;
};

// A directory of checkpoints, named by their step.
class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path file(int64_t step) const;
  // Steps of the checkpoints that are there, the newest first. Error(kIo).
  std::vector<int64_t> steps() const;
  // Removes all but the newest `keep` and that of `best_step`; files that cannot be removed stay.
  void prune(int64_t keep, int64_t best_step) const;
  // Removes what a killed process left while it wrote. Only for who has locked the run's directory.
  void remove_unfinished() const;

 private:
  std::filesystem::path path_;
};

}  // namespace patina
