#include "cli/gemmbench_report.h"

#include <nlohmann/json.hpp>
#include <set>

#include "cli/common.h"

namespace patina {

namespace {

using Json = nlohmann::ordered_json;

// A number that is not there is 0 in a measurement: "-" in the table, null in JSON.
std::string shown(const char* format, double value, bool there = true) {
  return there && value != 0 ? fmt::format(fmt::runtime(format), value) : "-";
}
Json number(double value) { return value != 0 ? Json(value) : Json(); }

std::string ratio_text(double ratio, bool invalid) { return shown("{:.3f}", ratio) + (invalid ? "!" : " "); }

constexpr const char* kInvalidNote =
    "! invalid: sgemm between the others differed by more than 3 % from sgemm alone, three times over\n";

std::string row_text(const Measurement& m) {
  const auto parity = [&](const char* format, double Parity::*figure) {
    return m.parity ? fmt::format(fmt::runtime(format), (*m.parity).*figure) : "-";
  };
  return fmt::format(
      "{:<7}{:<10}{:<12}{:>11}{:>9}{:>9}{:>9}{:>12}{:>10}{:>10}{:>9}\n", m.type, name(m.kind), m.formulation,
      shown("{:.3f}", m.ms), shown("{:.1f}", m.gflops()), shown("{:.1f} %", 100 * m.peak_share),
      m.formulation == kSgemm ? "1    " : ratio_text(m.ratio(), m.invalid), parity("{:.8f}", &Parity::cosine),
      parity("{:.1e}", &Parity::max_relative), parity("{:.1e}", &Parity::rms_relative),
      shown("{:.1f}", static_cast<double>(m.bytes) / 1e6, m.measured()));
}

Json row_json(const GemmBenchOptions& options, const Measurement& m) {
  Json row = {{"shape", options.shape.name},
              {"site", m.sites},
              {"count", m.count},
              {"k", m.k != 0 ? Json(m.k) : Json()},
              {"n", m.n != 0 ? Json(m.n) : Json()},
              {"t", m.t},
              {"type", m.type},
              {"direction", name(m.kind)},
              {"formulation", m.formulation},
              {"ms", number(m.ms)},
              {"rounds", m.rounds},
              {"gflops", number(m.gflops())},
              {"peakShare", number(m.peak_share)},
              {"ratio", number(m.ratio())},
              {"cosine", Json()},
              {"maxRel", Json()},
              {"rmsRel", Json()},
              {"rmsRelAccepted", Json()},
              {"bytes", m.bytes != 0 ? Json(m.bytes) : Json()},
              {"invalid", m.invalid}};
  if (m.parity) {
    row["cosine"] = m.parity->cosine;
    row["maxRel"] = m.parity->max_relative;
    row["rmsRel"] = m.parity->rms_relative;
    row["rmsRelAccepted"] = m.parity->bound;
  }
  if (!m.note.empty()) row["note"] = m.note;
  return row;
}

std::string sums_text(const std::vector<LayerSum>& sums) {
  if (sums.empty()) return "";
  std::string text =
      "\nA layer's products in one training step: two forwards (one of them recomputed) and one backward, ms and x "
      "sgemm\n";
  text += fmt::format("{:>6} {:<7}{:<12}{:>11}{:>8} {:>11}{:>8} {:>11}{:>8} {:>10}\n", "T", "type", "formulation",
                      "forward", "ratio", "backward", "ratio", "step", "ratio", "x outprod");
  bool invalid = false;
  for (const LayerSum& sum : sums) {
    text += fmt::format("{:>6} {:<7}{:<12}{:>11.2f}{:>9}{:>11.2f}{:>9}{:>11.2f}{:>9}{:>10}\n", sum.t, sum.type,
                        name(sum.formulation), sum.forward_ms, ratio_text(sum.forward_ratio(), sum.invalid),
                        sum.backward_ms, ratio_text(sum.backward_ratio(), sum.invalid), sum.step_ms(),
                        ratio_text(sum.step_ratio(), sum.invalid), shown("{:.2f}", sum.over_outprod));
    invalid = invalid || sum.invalid;
  }
  return text + (invalid ? kInvalidNote : "");
}

Json sum_json(const LayerSum& sum) {
  return {{"t", sum.t},
          {"type", sum.type},
          {"formulation", name(sum.formulation)},
          {"forwardMs", sum.forward_ms},
          {"backwardMs", sum.backward_ms},
          {"stepMs", sum.step_ms()},
          {"sgemmForwardMs", number(sum.yardstick_forward_ms)},
          {"sgemmBackwardMs", number(sum.yardstick_backward_ms)},
          {"forwardRatio", number(sum.forward_ratio())},
          {"backwardRatio", number(sum.backward_ratio())},
          {"stepRatio", number(sum.step_ratio())},
          {"overOutprod", number(sum.over_outprod)},
          {"invalid", sum.invalid}};
}

Json machine_json(const GemmBenchMachine& machine) {
  Json yardstick;
  if (!machine.yardstick.empty())
    yardstick = {
        {"config", machine.yardstick}, {"core", machine.yardstick_core}, {"threads", machine.yardstick_threads}};
  return {{"cpu", machine.cpu},
          {"isa", machine.isa},
          {"threads", machine.threads},
          {"peakGflops", machine.peak_gflops},
          {"openblas", yardstick},
          {"otherCoresBefore", machine.other_cores_before},
          {"otherCores", machine.other_cores},
          {"busy", machine.busy()},
          {"patina", PATINA_VERSION}};
}

}  // namespace

std::string gemmbench_head(const GemmBenchOptions& options, const GemmBenchMachine& machine) {
  std::string text = fmt::format("gemmbench  {}: {}\n", options.shape.name,
                                 options.step ? "all frozen products of a layer, forward and backward"
                                              : "frozen products, W [N,K] in its stored type");
  text += fmt::format("machine    {}, {}, {} kernels, patina {}\n", machine.cpu, counted(machine.threads, "thread"),
                      machine.isa, PATINA_VERSION);
  text += fmt::format("peak       {:.1f} GFLOP/s of independent multiply-adds\n", machine.peak_gflops);
  if (machine.yardstick.empty())
    return text + fmt::format(
                      "sgemm      none: {} is not on this machine, so there are no ratios (package "
                      "libopenblas0-pthread)\n",
                      options.yardstick_library);
  return text + fmt::format("sgemm      {}, {} kernels, {}\n", machine.yardstick, machine.yardstick_core,
                            counted(machine.yardstick_threads, "thread"));
}

std::string gemmbench_block(const GemmBenchResult& result, size_t first) {
  if (first >= result.measurements.size()) return "";
  const Measurement& head = result.measurements[first];
  std::string text = head.k == 0 ? fmt::format("\n{}  T = {}\n", head.sites, head.t)
                                 : fmt::format("\n{}  K x N = {} x {}, T = {}\n", head.sites, head.k, head.n, head.t);
  text += fmt::format("{:<7}{:<10}{:<12}{:>11}{:>9}{:>9}{:>8} {:>12}{:>10}{:>10}{:>9}\n", "type", "direction",
                      "formulation", "ms", "GFLOP/s", "peak", "ratio", "cosine", "max rel", "rms rel", "MB");
  bool invalid = false;
  std::set<std::string> notes;
  for (size_t i = first; i < result.measurements.size(); ++i) {
    const Measurement& m = result.measurements[i];
    text += row_text(m);
    invalid = invalid || m.invalid;
    if (!m.note.empty()) notes.insert(fmt::format("- {} {}: {}\n", m.type, m.formulation, m.note));
  }
  for (const std::string& note : notes) text += note;
  return text + (invalid ? kInvalidNote : "");
}

std::string gemmbench_tail(const GemmBenchResult& result) {
  std::string text = sums_text(result.sums);
  if (result.emulated.empty()) return text;
  text += "\nActivation gradients in reduced precision, emulated on normal numbers\n";
  for (const EmulatedParity& line : result.emulated)
    text += fmt::format("{} {} x {}, T = {}: cosine {:.7f}, max rel {:.2e}  {}\n", line.sites, line.k, line.n, line.t,
                        line.cosine, line.max_relative, line.what);
  return text;
}

std::string gemmbench_json(const GemmBenchOptions& options, const GemmBenchResult& result) {
  Json rows = Json::array(), sums = Json::array(), emulated = Json::array();
  for (const Measurement& m : result.measurements) rows.push_back(row_json(options, m));
  for (const LayerSum& sum : result.sums) sums.push_back(sum_json(sum));
  for (const EmulatedParity& line : result.emulated)
    emulated.push_back({{"site", line.sites},
                        {"k", line.k},
                        {"n", line.n},
                        {"t", line.t},
                        {"arithmetic", line.what},
                        {"cosine", line.cosine},
                        {"maxRel", line.max_relative}});
  const Json object = {{"machine", machine_json(result.machine)},
                       {"shape", options.shape.name},
                       {"step", options.step},
                       {"rows", rows},
                       {"layerSums", sums},
                       {"emulated", emulated}};
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace patina
