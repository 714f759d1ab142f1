#include "cli/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace patina {

namespace {

constexpr double kWidth = 640, kHeight = 260, kLeft = 64, kRight = 12, kTop = 30, kBottom = 34;
constexpr size_t kMostPoints = 500;
constexpr std::array kColours = {"#1f6f8b", "#c8553d", "#588157", "#7b4b94",
                                 "#b08900", "#3d5a80", "#8d6e63", "#444444"};

struct Span {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen() {
    if (high > low) return;
    const double half = std::max(std::abs(low) * 0.05, 1e-12);
    low -= half;
    high += half;
  }
};

// Neighbours become one point each, their mean, until there are few enough to see.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points) {
  std::vector<ChartPoint> finite;
  for (const ChartPoint& point : points)
    if (std::isfinite(point.y)) finite.push_back(point);
  const size_t each = (finite.size() + kMostPoints - 1) / kMostPoints;
  if (each <= 1) return finite;
  std::vector<ChartPoint> means;
  for (size_t begin = 0; begin < finite.size(); begin += each) {
    const size_t count = std::min(each, finite.size() - begin);
    ChartPoint mean{0, 0};
    for (size_t i = begin; i < begin + count; ++i) {
      mean.x += finite[i].x / static_cast<double>(count);
      mean.y += finite[i].y / static_cast<double>(count);
    }
    means.push_back(mean);
  }
  return means;
}

// About four steps of 1, 2 or 5 times a power of ten.
double tick_step(const Span& span) {
  const double rough = (span.high - span.low) / 4, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

std::string number_text(double value, double step) {
  return fmt::format("{:.6g}", std::abs(value) < step * 1e-6 ? 0.0 : value);
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  return escaped;
}

std::string svg_chart(std::string_view title, std::string_view x_label, const std::vector<ChartLine>& lines) {
  std::vector<std::vector<ChartPoint>> drawn;
  Span x, y;
  bool any = false;
  for (const ChartLine& line : lines) {
    drawn.push_back(thinned(line.points));
    any = any || drawn.back().size() > 1;
    for (const ChartPoint& point : drawn.back()) {
      x.add(point.x);
      y.add(point.y);
    }
  }
  if (!any) return "";
  x.widen();
  y.widen();
  const auto at_x = [&](double v) { return kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double v) {
    return kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  };
  std::string svg = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text class=\"title\" x=\"{}\" "
      "y=\"18\">{}</text>\n",
      kWidth, kHeight, html_escaped(title), kLeft, html_escaped(title));
  const double step_y = tick_step(y), step_x = tick_step(x);
  for (double v = std::ceil(y.low / step_y) * step_y; v <= y.high + step_y * 1e-9; v += step_y)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft, kWidth - kRight, at_y(v), at_y(v), kLeft - 6, at_y(v) + 4, number_text(v, step_y));
  for (double v = std::ceil(x.low / step_x) * step_x; v <= x.high + step_x * 1e-9; v += step_x)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", at_x(v),
                       kHeight - kBottom + 16, number_text(v, step_x));
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kWidth - kRight, kHeight - 4,
                     html_escaped(x_label));
  double legend = kWidth - kRight;
  for (size_t i = lines.size(); i-- > 0;) {
    const char* const colour = kColours[i % kColours.size()];
    std::string points;
    for (const ChartPoint& point : drawn[i]) points += fmt::format("{:.1f},{:.1f} ", at_x(point.x), at_y(point.y));
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n", colour, points);
    if (lines.size() == 1) continue;
    svg += fmt::format("<text x=\"{:.0f}\" y=\"18\" text-anchor=\"end\" style=\"fill:{}\">{}</text>\n", legend, colour,
                       html_escaped(lines[i].label));
    legend -= 7.0 * static_cast<double>(lines[i].label.size()) + 14;
  }
  return svg + "</svg>\n";
}

}  // namespace patina
