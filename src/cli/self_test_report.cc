#include "cli/self_test_report.h"

#include <algorithm>

#include "cli/common.h"

namespace patina {

namespace {

// Of a number: enough to see what it is, short where it is a count.
std::string number_text(double value) { return fmt::format("{:.3g}", value); }

std::string_view sign(const Bar& bar) { return bar.side == Bar::Side::kAtMost ? "<=" : ">="; }

std::string bar_text(const Bar& bar) {
  if (bar.side == Bar::Side::kAtMost && bar.value == 0) return "0";
  return fmt::format("{} {:g}", sign(bar), bar.value);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string line(std::string_view name, std::string_view subject, std::string_view what, std::string_view measured,
                 std::string_view bar, std::string_view verdict) {
  return fmt::format("{:<4} {:<8} {:<78} {:<20} {:<18} {}\n", name, subject, what, measured, bar, verdict);
}

bool is_asked(const Bar& bar, const RungRow& row) {
  return !bar.of_mm || (row.formulation == Formulation::kMm && !row.is_outprod);
}

// The number that comes nearest to the bar, or lies furthest beyond.
std::string worst(std::span<const RungRow> rows, size_t index) {
  const Bar& bar = rows[0].rung->bars[index];
  std::optional<double> found;
  for (const RungRow& row : rows) {
    if (row.measured.size() <= index || !is_asked(bar, row)) continue;
    const double value = row.measured[index];
    const bool worse = !found || !(bar.side == Bar::Side::kAtMost ? value <= *found : value >= *found);
    if (worse) found = value;
  }
  return found ? number_text(*found) : "-";
}

std::string row_name(const RungRow& row) {
  std::string text;
  if (row.dtype) text += fmt::format("{} ", name(*row.dtype));
  if (row.formulation) text += fmt::format("{} ", name(*row.formulation));
  return text;
}

std::string failure_text(const RungRow& row) {
  std::string text = fmt::format("     FAILED {}", row_name(row));
  if (!row.error.empty()) return text + row.error + "\n";
  for (size_t i = 0; i < row.rung->bars.size(); ++i) {
    const Bar& bar = row.rung->bars[i];
    if (!is_asked(bar, row)) continue;
    text += fmt::format("{}{}{} (bar: {})", i == 0 ? "" : ", ", bar.of.empty() ? "" : fmt::format("{} ", bar.of),
                        i < row.measured.size() ? number_text(row.measured[i]) : "not measured", bar_text(bar));
  }
  return text + "\n";
}

}  // namespace

std::string self_test_head() { return line("rung", "on", "what", "measured", "bar", ""); }

std::string rung_text(std::span<const RungRow> rows) {
  const Rung& rung = *rows[0].rung;
  std::vector<std::string> measured, bars;
  for (size_t i = 0; i < rung.bars.size(); ++i) {
    measured.push_back(worst(rows, i));
    bars.push_back(bar_text(rung.bars[i]));
  }
  const auto failed = std::ranges::count_if(rows, [](const RungRow& row) { return !row.passed; });
  std::string text = line(rung.name, rows[0].subject, rung.what, joined(measured), joined(bars),
                          failed == 0 ? "pass" : fmt::format("FAIL ({} of {} rows)", failed, rows.size()));
  for (const RungRow& row : rows)
    if (!row.passed) text += failure_text(row);
  return text;
}

std::string self_test_tail(int64_t rungs, int64_t rows, int64_t failed, int64_t copies, double ms) {
  std::string text = fmt::format("\n{} of {} in {:.1f} s: ", counted(rows, "row"), counted(rungs, "rung"), ms / 1e3);
  text += failed == 0 ? "all passed\n" : fmt::format("{} FAILED\n", grouped(failed));
  if (copies > 0)
    text += fmt::format(
        "{} with mm on a block-quantised weight, which cannot be copied transposed, ran once: as outprod, which they "
        "are\n",
        counted(copies, "row"));
  return text;
}

Json rung_event(const RungRow& row) {
  Json measured = Json::array();
  for (size_t i = 0; i < row.rung->bars.size(); ++i) {
    const Bar& bar = row.rung->bars[i];
    if (!is_asked(bar, row)) continue;
    measured.push_back({{"of", bar.of},
                        {"value", i < row.measured.size() ? Json(row.measured[i]) : Json()},
                        {"bar", bar.value},
                        {"side", sign(bar)}});
  }
  Json event = {{"rung", row.rung->name},
                {"subject", row.subject},
                {"what", row.rung->what},
                {"type", row.dtype ? Json(name(*row.dtype)) : Json()},
                {"formulation", row.formulation ? Json(name(*row.formulation)) : Json()},
                {"measured", std::move(measured)},
                {"passed", row.passed},
                {"ms", row.ms}};
  if (row.is_outprod) event["ran"] = row.is_copy ? "the row of outprod" : "as outprod";
  if (!row.error.empty()) event["error"] = row.error;
  return event;
}

}  // namespace patina
