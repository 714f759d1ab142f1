// What a self-test prints: a line a rung for people, an event a row for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/events.h"
#include "selftest/self_test.h"

namespace patina {

std::string self_test_head();
// All rows of one rung on one subject: the worst numbers, and under it a line for each row that failed.
std::string rung_text(std::span<const RungRow> rows);
// "113 rows of 32 rungs in 21.0 s: all passed".
std::string self_test_tail(int64_t rungs, int64_t rows, int64_t failed, int64_t copies, double ms);

Json rung_event(const RungRow& row);

}  // namespace patina
