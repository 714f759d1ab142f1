#include "cli/profile.h"

#include <fmt/format.h>

namespace patina {

namespace {

struct Figures {
  double share, ms_per_step, gflops, peak_share, gigabytes_per_second;
};

// Where there is nothing to count, a rate is 0.
Figures figures(const Profile& profile, const Profile::Row& row, int64_t steps, double peak_gflops) {
  return {row.ms / profile.ms(), row.ms / static_cast<double>(steps), row.gflops(), row.gflops() / peak_gflops,
          row.gigabytes_per_second()};
}

Profile::Row sum_of(const std::vector<Profile::Row>& rows) {
  Profile::Row sum;
  sum.op = "all";
  for (const Profile::Row& row : rows) {
    sum.ms += row.ms;
    sum.work.operations += row.work.operations;
  }
  return sum;
}

std::string cell(double value, std::string_view format) {
  return value > 0 ? fmt::format(fmt::runtime(format), value) : "";
}

}  // namespace

Json profile_event(const Profile& profile, int64_t steps, double peak_gflops) {
  Json ops = Json::array();
  const std::vector<Profile::Row> rows = profile.rows();
  for (const Profile::Row& row : rows) {
    const Figures f = figures(profile, row, steps, peak_gflops);
    ops.push_back({{"op", row.op},
                   {"phase", name(row.phase)},
                   {"calls", row.calls},
                   {"share", f.share},
                   {"msPerStep", f.ms_per_step},
                   {"operations", row.work.operations},
                   {"bytes", row.work.bytes},
                   {"gflops", f.gflops},
                   {"peakShare", f.peak_share},
                   {"gbPerSecond", f.gigabytes_per_second}});
  }
  const Profile::Row all = sum_of(rows);
  return {{"steps", steps}, {"ms", profile.ms()}, {"gflops", all.gflops()}, {"peakGflops", peak_gflops}, {"ops", ops}};
}

std::string profile_table(const Profile& profile, int64_t steps, double peak_gflops) {
  std::string text = fmt::format("{:<20}{:<10}{:>8}{:>12}{:>10}{:>9}{:>8}\n", "op", "phase", "share", "ms a step",
                                 "GFLOP/s", "of peak", "GB/s");
  std::vector<Profile::Row> rows = profile.rows();
  rows.push_back(sum_of(rows));
  for (const Profile::Row& row : rows) {
    const Figures f = figures(profile, row, steps, peak_gflops);
    const bool counted = row.work.operations > 0;  // else bound by memory
    text += fmt::format("{:<20}{:<10}{:>6.1f} %{:>12.2f}{:>10}{:>9}{:>8}\n", row.op, name(row.phase), 100 * f.share,
                        f.ms_per_step, cell(f.gflops, "{:.1f}"), cell(100 * f.peak_share, "{:.1f} %"),
                        counted ? "" : cell(f.gigabytes_per_second, "{:.1f}"));
  }
  return text + fmt::format("peak {:.0f} GFLOP/s of multiply-adds in registers, measured after the run\n", peak_gflops);
}

}  // namespace patina
