// What named places of a model hold in a run, to be compared with another run.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/executor.h"

namespace patina {

// Rows of values by their places in the model: labels of nodes.
using Trace = std::map<std::string, std::vector<double>>;

// Runs a graph and appends to each place the rows that the last node there makes, up to the first node at `end`.
void run_traced(Executor& executor, std::span<const int64_t> sizes, std::span<const std::string> places,
                const std::string& end, Trace& trace);
// The largest relative error of a place.
double worst_place(const Trace& got, const Trace& expected);

}  // namespace patina
