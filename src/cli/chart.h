// Line charts as SVG, drawn here: a page with them needs no script and no network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace patina {

struct ChartPoint {
  double x, y;
};
struct ChartLine {
  std::string label;
  std::vector<ChartPoint> points;  // x ascending; those whose y is not finite are left out
};

// Lines of many points are drawn as means of neighbours. Empty where no line has two points.
std::string svg_chart(std::string_view title, std::string_view x_label, const std::vector<ChartLine>& lines);

std::string html_escaped(std::string_view text);

}  // namespace patina
