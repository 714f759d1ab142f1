// --profile: where the time of a run's steps went.
#pragma once

#include <string>

#include "cli/events.h"
#include "graph/profile.h"

namespace patina {

// `peak_gflops`: what multiply_add_peak() says of the machine.
Json profile_event(const Profile& profile, int64_t steps, double peak_gflops);
// The same for people: a table, the longest first.
std::string profile_table(const Profile& profile, int64_t steps, double peak_gflops);

}  // namespace patina
