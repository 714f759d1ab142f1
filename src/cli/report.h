// A run as one page: report.html, made of the run's events alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/chart.h"
#include "cli/events.h"

namespace patina {

class Report {
 public:
  // What an event tells; those that say nothing a page shows are passed over.
  void add(const std::string& name, const Json& fields);
  // The whole page, without script, style sheet or picture from elsewhere. While the run goes on it asks the browser to
  // read it again now and then.
  std::string html() const;

 private:
  std::string summary() const;
  std::string charts() const;
  std::string samples() const;

  std::map<std::string, Json> latest_;  // by event: start, model, data, memory, step, epoch, profile, done
  std::vector<ChartPoint> loss_, validation_, rate_, norm_, speed_;
  std::map<std::string, std::vector<ChartPoint>> site_norms_;
  std::map<int64_t, std::vector<Json>> samples_;  // by step
  std::vector<std::string> warnings_;
};

}  // namespace patina
