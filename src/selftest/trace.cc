#include "selftest/trace.h"

#include "selftest/measures.h"

namespace patina {

void run_traced(Executor& executor, std::span<const int64_t> sizes, std::span<const std::string> places,
                const std::string& end, Trace& trace) {
  Trace of_run;
  bool ended = false;
  executor.run(sizes, [&](const Executor::Finished& finished) {
    ended = ended || finished.node.label == end;
    const Tensor& out = finished.outputs[0];
    if (ended || out.dtype != DType::kF32) return;
    of_run[finished.node.label] = as_doubles({out.f32(), static_cast<size_t>(out.shape.elements())});
  });
  for (const std::string& place : places) {
    const auto found = of_run.find(place);
    PATINA_CHECK(found != of_run.end(), "no node at {}", place);
    trace[place].insert(trace[place].end(), found->second.begin(), found->second.end());
  }
}

double worst_place(const Trace& got, const Trace& expected) {
  double worst = 0;
  for (const auto& [place, rows] : expected) worst = larger(worst, relative_error(got.at(place), rows));
  return worst;
}

}  // namespace patina
