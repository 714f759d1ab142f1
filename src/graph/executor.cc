#include "graph/executor.h"

#include <sys/mman.h>

#include <algorithm>

namespace patina {

Executor::Executor(const Graph& graph, const Backend& backend, ThreadPool& pool)
    : graph_(graph), pool_(pool), plan_(plan_memory(graph, backend, pool.size())) {
  if (plan_.arena_bytes > 0) {
    void* arena = mmap(nullptr, static_cast<size_t>(plan_.arena_bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
      fail(Error::Kind::kMemory,
           "cannot reserve {} bytes for activations; use a shorter --context or smaller --micro-tokens",
           plan_.arena_bytes);
    // Huge pages where the system grants them: products walk many megabytes per node.
    madvise(arena, static_cast<size_t>(plan_.arena_bytes), MADV_HUGEPAGE);
    arena_ = static_cast<std::byte*>(arena);
  }
  const size_t values = static_cast<size_t>(graph.values());
  data_.resize(values, nullptr);
  shapes_.resize(values);
  for (size_t v = 0; v < values; ++v) {
    const ValueId id = static_cast<ValueId>(v);
    shapes_[v] = graph.maximum_shape(id);
    const Value& owner = graph.value(plan_.storage[v]);
    if (owner.kind == ValueKind::kComputed && owner.producer < 0) continue;  // gone
    if (owner.kind == ValueKind::kComputed)
      data_[v] = arena_ + plan_.offset_bytes[static_cast<size_t>(plan_.storage[v])] +
                 bytes_of(graph.value(id).dtype, graph.value(id).offset);
    else if (owner.data != nullptr)
      bind(plan_.storage[v], owner.data);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op->name() == "view") continue;
    std::span<std::byte> scratch;
    if (plan_.scratch_bytes[i] > 0)
      scratch = {arena_ + plan_.scratch_offset_bytes[i], static_cast<size_t>(plan_.scratch_bytes[i])};
    steps_.push_back({&node, static_cast<int>(i), backend.kernel(node.op->name()).run, scratch, arguments_.size(),
                      node.inputs.size(), node.outputs.size()});
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const ValueId id : *list) {
        argument_values_.push_back(id);
        arguments_.push_back(id == kNoValue ? Tensor{} : tensor_at(id));
      }
  }
}

Executor::~Executor() {
  if (arena_ != nullptr) munmap(arena_, static_cast<size_t>(plan_.arena_bytes));
}

void Executor::prefault() {
  constexpr int64_t kPageBytes = 4096, kTaskBytes = 2 << 20;  // of small pages; of a huge page
  pool_.run((plan_.arena_bytes + kTaskBytes - 1) / kTaskBytes, [&](int64_t task, int) {
    const int64_t end = std::min(plan_.arena_bytes, (task + 1) * kTaskBytes);
    // Written, not read: memory that is read first is faulted in twice (2199 faults instead of 655 for half a
    // gigabyte).
    for (int64_t at = task * kTaskBytes; at < end; at += kPageBytes)
      *static_cast<volatile std::byte*>(arena_ + at) = {};
  });
}

void Executor::bind(ValueId id, void* data) {
  PATINA_CHECK(graph_.value(id).kind != ValueKind::kComputed, "{} is computed", graph_.value(id).name);
  for (size_t v = 0; v < data_.size(); ++v)
    if (plan_.storage[v] == id) {
      const Value& value = graph_.value(static_cast<ValueId>(v));
      data_[v] = static_cast<std::byte*>(data) + bytes_of(value.dtype, value.offset);
    }
}

Tensor Executor::tensor_at(ValueId id) const {
  const Value& value = graph_.value(id);
  Tensor tensor;
  tensor.data = data_[static_cast<size_t>(id)];
  tensor.dtype = value.dtype;
  tensor.shape = shapes_[static_cast<size_t>(id)];
  tensor.strides = value.strides;
  tensor.row_map = value.row_map;
  return tensor;
}

Tensor Executor::tensor(ValueId id) const { return tensor_at(id); }

void Executor::resolve(std::span<const int64_t> sizes) {
  PATINA_CHECK(static_cast<int>(sizes.size()) == graph_.symbols(), "{} sizes for {} symbols", sizes.size(),
               graph_.symbols());
  for (size_t s = 0; s < sizes.size(); ++s)
    PATINA_CHECK(sizes[s] >= 0 && sizes[s] <= graph_.symbol_maximum(static_cast<int>(s)), "symbol {} is {}, maximum {}",
                 graph_.symbol_name(static_cast<int>(s)), sizes[s], graph_.symbol_maximum(static_cast<int>(s)));
  for (size_t v = 0; v < shapes_.size(); ++v) shapes_[v] = graph_.shape(static_cast<ValueId>(v), sizes);
  for (size_t a = 0; a < arguments_.size(); ++a)
    if (argument_values_[a] != kNoValue) {
      arguments_[a].shape = shapes_[static_cast<size_t>(argument_values_[a])];
      arguments_[a].data = data_[static_cast<size_t>(argument_values_[a])];
      PATINA_CHECK(arguments_[a].data != nullptr, "{} is not bound", graph_.value(argument_values_[a]).name);
    }
}

void Executor::run(std::span<const int64_t> sizes) {
  run(sizes, [](const Finished&) {});
}

void Executor::run(std::span<const int64_t> sizes, FunctionRef<void(const Finished&)> observe) {
  resolve(sizes);
  const std::span<const Tensor> arguments(arguments_);
  if (stream_ != nullptr) stream_->begin();
  for (const Step& step : steps_) {
    KernelContext context{pool_, step.scratch, stream_};
    const std::span<const Tensor> in = arguments.subspan(step.first, step.inputs),
                                  out = arguments.subspan(step.first + step.inputs, step.outputs);
    step.run(*step.node->op, in, out, context);
    if (stream_ != nullptr) stream_->passed(step.index);
    observe({*step.node, in, out});
  }
}

}  // namespace patina
