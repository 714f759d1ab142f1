// Every kind of adapter in generation.
#include <gtest/gtest.h>

#include <cmath>

#include "infer/generator.h"
#include "support/adapter_kinds.h"
#include "support/branch.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

// The loss through an adapted head is that of the logits which generation sees.
TEST(AdapterKinds, TheLossOfTheHeadIsThatOfGeneration) {
  const TinyLm lm({.tied_head = false});
  const std::vector<Sequence> sequences = {random_sequence(20, 1, 0)};
  for (const Kind& kind : kinds()) {
    Adapter adapter(lm.model.sites(), kind.options);
    disturb(adapter);
    ThreadPool pool(2);
    const Evaluation result = evaluate(lm.model, &adapter, sequences, 512, cpu_backend(), pool);
    Generator generator(lm.model, &adapter, cpu_backend(), pool, 32);
    double expected = 0;
    for (size_t i = 0; i + 1 < sequences[0].ids.size(); ++i) {
      const std::span<const float> logits = generator.feed({&sequences[0].ids[i], 1});
      double largest = -1e30, sum = 0;
      for (const float logit : logits) largest = std::max(largest, static_cast<double>(logit));
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
      expected += largest + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(sequences[0].ids[i + 1])]);
    }
    EXPECT_TRUE(std::abs(result.loss_sum - expected) <= 1e-4 * expected) << kind.name << " " << result.loss_sum;
  }
}

}  // namespace
}  // namespace patina::testing
