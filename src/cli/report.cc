#include "cli/report.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "cli/common.h"

namespace patina {

namespace {

constexpr size_t kMostWarnings = 50;
constexpr size_t kMostSampleSteps = 20;  // the first, and the last ones

constexpr std::string_view kHead = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1340px; padding: 0 1em; color: #222; background: #fcfbf8; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.1em; margin-top: 2em; }
.state { color: #555; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1em; }
.chart { width: 100%; background: #fff; border: 1px solid #ddd; border-radius: 4px; }
.chart text { font: 11px system-ui, sans-serif; fill: #555; }
.chart .title { font-weight: 600; font-size: 13px; fill: #222; }
.chart .grid { stroke: #eee; }
table { border-collapse: collapse; }
td, th { text-align: left; padding: 0.15em 1.2em 0.15em 0; vertical-align: top; }
td.text { white-space: pre-wrap; max-width: 32em; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.columns { display: flex; flex-wrap: wrap; gap: 3em; }
</style>
)";

std::string text_of(const Json& value) {
  return html_escaped(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string settings_table(const Json& fields) {
  std::string table = "<table>\n";
  for (const auto& [name, value] : fields.items())
    table += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", html_escaped(name), text_of(value));
  return table + "</table>\n";
}

std::string memory_table(const Json& memory) {
  std::string table = "<table>\n";
  for (const auto& [kind, bytes] : memory.items())
    table += fmt::format("<tr><th>{}</th><td class=\"number\">{}</td></tr>\n", html_escaped(kind),
                         bytes_text(bytes.get<int64_t>()));
  return table + "</table>\n";
}

std::string profile_table(const Json& profile) {
  std::string table = "<table>\n<tr><th>op</th><th>phase</th><th>share</th><th>ms a step</th></tr>\n";
  for (const Json& op : profile.at("ops"))
    table += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"number\">{:.1f} %</td><td class=\"number\">{:.2f}</td></tr>\n",
        text_of(op.at("op")), text_of(op.at("phase")), 100.0 * op.at("share").get<double>(),
        op.at("msPerStep").get<double>());
  return table + "</table>\n";
}

// What is not finite is null in a file, and so in the events of a run that goes on.
double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void Report::add(const std::string& name, const Json& fields) {
  const auto number = [&](const char* key) { return number_of(fields.at(key)); };
  if (name == "step") {
    const double step = number("step");
    loss_.push_back({step, number("loss")});
    rate_.push_back({step, number("lr")});
    norm_.push_back({step, number("gradNorm")});
    speed_.push_back({step, number("tokensPerSecond")});
  } else if (name == "eval") {
    validation_.push_back({number("step"), number("loss")});
  } else if (name == "epoch") {
    for (const auto& [site, norm] : fields.at("siteGradNorms").items())
      site_norms_[site].push_back({number("epoch"), number_of(norm)});
  } else if (name == "sample") {
    samples_[fields.at("step").get<int64_t>()].push_back(fields);
    if (samples_.size() > kMostSampleSteps) samples_.erase(std::next(samples_.begin()));
  } else if (name == "warning" && warnings_.size() < kMostWarnings) {
    warnings_.push_back(fields.at("message"));
  }
  latest_[name] = fields;
}

std::string Report::summary() const {
  const auto step = latest_.find("step");
  if (step == latest_.end()) return "before its first step";
  const Json& fields = step->second;
  std::string text =
      fmt::format("step {} of {}, loss {:.4f}", grouped(fields.at("step")), grouped(fields.at("totalSteps")),
                  fields.at("loss").is_number() ? fields.at("loss").get<double>() : 0.0);
  if (!validation_.empty()) {
    const auto best = std::ranges::min_element(validation_, {}, &ChartPoint::y);
    text += fmt::format(", best validation {:.4f} at step {}", best->y, best->x);
  }
  const auto done = latest_.find("done");
  if (const auto fatal = latest_.find("fatal"); fatal != latest_.end())
    return text + "; ended: " + text_of(fatal->second.at("message"));
  if (done == latest_.end()) return text + ", still running when this was written";
  return text + fmt::format("; {} after {}", text_of(done->second.at("reason")),
                            duration_text(done->second.at("ms").get<double>() / 1e3));
}

std::string Report::charts() const {
  std::vector<ChartLine> losses = {{"training", loss_}}, sites;
  if (!validation_.empty()) losses.push_back({"validation", validation_});
  for (const auto& [site, points] : site_norms_) sites.push_back({site, points});
  return "<div class=\"charts\">\n" + svg_chart("Loss", "step", losses) +
         svg_chart("Learning rate", "step", {{"", rate_}}) + svg_chart("Gradient norm", "step", {{"", norm_}}) +
         svg_chart("Tokens a second", "step", {{"", speed_}}) +
         svg_chart("Gradient norm by site, last step of each epoch", "epoch", sites) + "</div>\n";
}

// The latest answers beside those of the base model; earlier ones to unfold.
std::string Report::samples() const {
  if (samples_.empty()) return "";
  std::string text = "<h2>Samples</h2>\n";
  for (auto set = samples_.rbegin(); set != samples_.rend(); ++set) {
    const bool latest = set == samples_.rbegin();
    std::string table = fmt::format(
        "<table class=\"samples\">\n<tr><th>prompt</th><th>before: base model</th><th>after step {}</th></tr>\n",
        grouped(set->first));
    for (const Json& sample : set->second)
      table += fmt::format("<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>\n",
                           text_of(sample.at("prompt")), text_of(sample.at("base")), text_of(sample.at("text")));
    table += "</table>\n";
    text += latest
                ? table
                : fmt::format("<details><summary>after step {}</summary>\n{}</details>\n", grouped(set->first), table);
  }
  return text;
}

std::string Report::html() const {
  const auto latest = [&](const char* name) {
    const auto found = latest_.find(name);
    return found == latest_.end() ? Json::object() : found->second;
  };
  const Json start = latest("start");
  const std::string out = start.value("out", "");
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n" + std::string(kHead);
  if (!latest_.contains("done") && !latest_.contains("fatal")) page += "<meta http-equiv=\"refresh\" content=\"20\">\n";
  page += fmt::format("<title>{0}</title>\n</head>\n<body>\n<h1>{0}</h1>\n<p class=\"state\">{1}</p>\n",
                      html_escaped("Patina: " + out), summary());
  page += charts();
  page += samples();
  for (const std::string& warning : warnings_) page += fmt::format("<p>Warning: {}</p>\n", html_escaped(warning));
  page += "<div class=\"columns\">\n<div><h2>Configuration</h2>\n" + settings_table(start) +
          "</div>\n<div><h2>Data</h2>\n" + settings_table(latest("data")) + "<h2>Model</h2>\n" +
          settings_table(latest("model")) + "</div>\n<div><h2>Memory plan</h2>\n" + memory_table(latest("memory"));
  if (latest_.contains("profile")) page += "<h2>Where the time went</h2>\n" + profile_table(latest("profile"));
  return page + "</div>\n</div>\n</body>\n</html>\n";
}

}  // namespace patina
