// Runs what an adapter computes from its parameters ahead of the graphs that use them.
#pragma once

#include <memory>
#include <optional>

#include "adapter/adapter.h"
#include "graph/executor.h"
#include "graph/stream.h"

namespace patina {

class Prelude {
 public:
  // `adapter` may be null, and must outlive this.
  Prelude(const Adapter* adapter, const Backend& backend, ThreadPool& pool) {
    if (adapter != nullptr && !adapter->prelude().nodes().empty()) executor_.emplace(adapter->prelude(), backend, pool);
  }

  // From now on frozen weights are streamed; `plan` is of the adapter's prelude().
  void stream_weights(StreamPlan plan) {
    if (!executor_) return;
    stream_ = std::make_unique<WeightStream>(std::move(plan));
    executor_->set_stream(stream_.get());
  }
  // After every change of the parameters.
  void run() {
    if (executor_) executor_->run({});
  }
  int64_t window_bytes() const { return stream_ ? stream_->plan().most_resident_bytes : 0; }
  int64_t arena_bytes() const { return executor_ ? executor_->plan().arena_bytes : 0; }

 private:
  std::unique_ptr<WeightStream> stream_;
  std::optional<Executor> executor_;
};

}  // namespace patina
