#include "data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace patina {
namespace {

// Cuts `order` into groups of at most `limit_tokens`, at least one sequence each.
std::vector<std::vector<size_t>> fill_greedily(std::span<const Sequence> sequences, std::span<const size_t> order,
                                               int64_t limit_tokens) {
  std::vector<std::vector<size_t>> groups;
  int64_t tokens = 0;
  for (const size_t index : order) {
    const int64_t more = static_cast<int64_t>(sequences[index].ids.size());
    if (groups.empty() || tokens + more > limit_tokens) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(index);
    tokens += more;
  }
  return groups;
}

// Index of the last label, 0 where there is none: as many tokens are inputs.
size_t last_label(const Sequence& sequence) {
  size_t last = sequence.ids.size();
  while (last > 0 && (last == sequence.ids.size() || !sequence.supervised[last])) --last;
  return last;
}

}  // namespace

std::vector<std::vector<size_t>> plan_epoch(std::span<const Sequence> sequences, int64_t batch_tokens, uint64_t seed,
                                            int64_t epoch) {
  PATINA_CHECK(epoch >= 0 && epoch <= std::numeric_limits<uint32_t>::max(), "epoch {}", epoch);
  const RandomStream random(seed, RandomUse::kShuffle, /*site=*/0, static_cast<uint32_t>(epoch));
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  return fill_greedily(sequences, order, batch_tokens);
}

std::vector<std::vector<size_t>> cut_step(std::span<const Sequence> sequences, std::span<const size_t> step,
                                          int64_t micro_tokens) {
  std::vector<size_t> order(step.begin(), step.end());
  std::ranges::stable_sort(order, {}, [&](size_t index) { return sequences[index].weight; });
  std::vector<std::vector<size_t>> groups;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && sequences[order[end]].weight == sequences[order[begin]].weight) ++end;
    for (std::vector<size_t>& group :
         fill_greedily(sequences, std::span(order).subspan(begin, end - begin), micro_tokens))
      groups.push_back(std::move(group));
  }
  return groups;
}

int64_t supervised_tokens(std::span<const Sequence> sequences, std::span<const size_t> step) {
  int64_t sum = 0;
  for (const size_t index : step) sum += sequences[index].supervised_tokens();
  return sum;
}

double supervised_weight(std::span<const Sequence> sequences, std::span<const size_t> step) {
  double sum = 0.0;
  for (const size_t index : step)
    sum += static_cast<double>(sequences[index].weight) * static_cast<double>(sequences[index].supervised_tokens());
  return sum;
}

void fill(MicroBatch& batch, std::span<const Sequence> sequences, std::span<const size_t> which) {
  batch.tokens.clear();
  batch.positions.clear();
  batch.samples.clear();
  batch.offsets.assign(1, 0);
  batch.first.clear();
  batch.rows.clear();
  batch.labels.clear();
  for (const size_t index : which) {
    const Sequence& sequence = sequences[index];
    const size_t inputs = last_label(sequence);
    if (inputs == 0) continue;
    for (size_t i = 0; i < inputs; ++i) {
      if (sequence.supervised[i + 1]) {
        batch.rows.push_back(static_cast<int32_t>(batch.tokens.size()));
        batch.labels.push_back(sequence.ids[i + 1]);
      }
      batch.tokens.push_back(sequence.ids[i]);
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.samples.push_back(static_cast<int32_t>(sequence.sample));
    }
    batch.offsets.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.first.push_back(0);
  }
}

}  // namespace patina
