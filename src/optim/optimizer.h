// What turns gradients into steps: one interface for all optimizers, their state as named buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/parameters.h"
#include "base/threads.h"

namespace patina {

// Double: 1 - beta2 of a beta2 rounded to F32 is off by 1e-5.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;  // decoupled
};

struct MuonOptions {
  double momentum = 0.95;
  double scale = 20.0;  // so that a learning rate chosen for AdamW does for Muon too
  double weight_decay = 0.01;
};

enum class OptimizerKind : uint8_t { kAdamW, kMuon };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double weight_decay = 0.01;
  double muon_scale = MuonOptions{}.scale;
  double lora_plus_ratio = 1.0;  // LoRA+ (arXiv 2402.12354): the rate of every B, over that of all else
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One step over a ParameterStore's whole buffers. The same bits for any number of threads.
  virtual void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
                    ThreadPool& pool) = 0;

  // All that an optimizer remembers beside the number of its steps: what a checkpoint holds. The buffers stay where
  // they are.
  struct State {
    std::string_view name;
    std::span<float> values;
  };
  virtual std::vector<State> state() = 0;
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 protected:
  int64_t steps_ = 0;
};

// A stretch of the flat buffers, and its learning rate over the common one.
struct ParameterRange {
  size_t offset, count;
  double rate_scale = 1.0;
};

// A parameter that is a matrix [rows, cols].
struct ParameterMatrix {
  size_t offset;
  int64_t rows, cols;
  double rate_scale = 1.0;
};

// How an optimizer divides a store: Muon takes matrices whose short side is at least 16, AdamW all else. With LoRA+,
// the B of a LoRA pair is what is named "....lora_b".
struct ParameterSplit {
  std::vector<ParameterMatrix> matrices;
  std::vector<ParameterRange> ranges;
  int64_t matrix_parameters = 0;
};
ParameterSplit split_parameters(const ParameterStore& store, const OptimizerOptions& options);
bool is_lora_b(std::string_view parameter);

// What an optimizer takes of memory.
struct OptimizerMemory {
  int64_t moments_bytes;  // its state
  int64_t scratch_bytes;  // from its first step on: what its threads work in
};
OptimizerMemory optimizer_memory(const ParameterStore& store, const OptimizerOptions& options, int threads);

std::unique_ptr<Optimizer> make_optimizer(const ParameterStore& store, const OptimizerOptions& options);

}  // namespace patina
