// The self-test itself: sound parts pass every rung, and rows are what their names say.
#include "selftest/self_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "selftest/measures.h"

namespace patina {
namespace {

std::vector<RungRow> rows_of(const SelfTestOptions& options) {
  const std::vector<Subject> subjects = {product_subject(), lm_subject(), dit_subject()};
  ThreadPool pool(2);
  std::vector<RungRow> rows;
  run_self_test(subjects, options, parts_in_use(), pool, [&](const RungRow& row) { rows.push_back(row); });
  return rows;
}

TEST(SelfTest, SoundPartsPass) {
  std::map<std::string_view, std::set<std::string_view>> names;
  for (const RungRow& row : rows_of({.only = {}, .formulations = {}, .types = {DType::kBF16, DType::kQ4_K}})) {
    const bool measures_memory = row.rung->name == "LM7";  // a sanitizer keeps what is freed
    EXPECT_TRUE(row.passed || (PATINA_SANITIZED && measures_memory))
        << row.subject << " " << row.rung->name << " " << row.error;
    EXPECT_EQ(row.measured.size(), row.rung->bars.size());
    for (const double value : row.measured) EXPECT_TRUE(std::isfinite(value) && value >= 0) << row.rung->name;
    EXPECT_EQ(row.dtype.has_value(), row.rung->repeats != Repeats::kOnce) << row.rung->name;
    EXPECT_EQ(row.formulation.has_value(), row.rung->repeats == Repeats::kByFormulation) << row.rung->name;
    names[row.subject].insert(row.rung->name);
  }
  using Names = std::set<std::string_view>;
  EXPECT_EQ(names["product"], (Names{"P1", "P2", "P3", "P4", "P5", "T11", "MU1", "LK1", "LM2", "LM5"}));
  const Names shared = {"T1",  "T2",  "T4",  "T5",  "T6",  "T7",  "LK2", "LK3", "LK4",
                        "LK5", "SB1", "SB2", "SB3", "SC1", "SC2", "SC3", "LM7"};
  const auto with = [&](Names own) {
    own.insert(shared.begin(), shared.end());
    return own;
  };
  EXPECT_EQ(names["lm"], with({"T3", "LM1", "LM3", "LM4", "LM6"}));
  EXPECT_EQ(names["dit"], with({"T3", "T8", "T9", "T10"}));
}

TEST(SelfTest, RowsThatCoincideRunOnceAndSaySo) {
  std::map<std::string_view, std::map<std::pair<DType, Formulation>, RungRow>> subjects;
  for (const RungRow& row : rows_of({.only = {"SC3"}, .formulations = {}, .types = {DType::kF32, DType::kQ8_0}}))
    subjects[row.subject][{row.dtype.value(), row.formulation.value()}] = row;
  ASSERT_EQ(subjects.size(), 2u);
  for (const auto& [subject, rows] : subjects) {
    ASSERT_EQ(rows.size(), 6u) << subject;
    for (const auto& [variant, row] : rows) {
      const bool coincides = variant == std::pair(DType::kQ8_0, Formulation::kMm);
      EXPECT_EQ(row.is_outprod, coincides);
      EXPECT_EQ(row.is_copy, coincides);
      EXPECT_TRUE(row.passed);
    }
    const RungRow &mm = rows.at({DType::kQ8_0, Formulation::kMm}),
                  &outprod = rows.at({DType::kQ8_0, Formulation::kOutprod});
    EXPECT_EQ(mm.measured, outprod.measured);
    EXPECT_GE(rows.at({DType::kF32, Formulation::kMm}).measured.at(1), 1) << "the guard was taken";
    EXPECT_EQ(rows.at({DType::kF32, Formulation::kOutprod}).measured.at(1), 0);
  }
  // Alone it runs, as what it is.
  const std::vector<RungRow> alone =
      rows_of({.only = {"SC3"}, .formulations = {Formulation::kMm}, .types = {DType::kQ8_0}});
  ASSERT_EQ(alone.size(), 2u);
  for (const RungRow& row : alone) EXPECT_TRUE(row.passed && row.is_outprod && !row.is_copy);
}

TEST(SelfTest, OnlyWhatWasAskedFor) {
  const std::vector<RungRow> rows =
      rows_of({.only = {"P1", "T2"}, .formulations = {Formulation::kFused}, .types = {DType::kQ6_K}});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].rung->name, "P1");
  EXPECT_EQ(rows[0].dtype, DType::kQ6_K);
  for (const size_t i : {1, 2}) EXPECT_EQ(rows[i].rung->name, "T2");
  try {
    rows_of({.only = {"P1", "SC9"}, .formulations = {}, .types = {}});
    FAIL() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kUsage);
    EXPECT_NE(std::string(error.what()).find("\"SC9\""), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("SC1, SC2, SC3"), std::string::npos) << error.what();
  }
}

TEST(Measures, NothingPassesOnNaNOrOnZeros) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> good = {1, -2}, zeros = {0, 0};
  EXPECT_TRUE(at_most(0).holds(relative_error(good, good)));
  EXPECT_DOUBLE_EQ(relative_error(std::vector<double>{1, -1}, good), 1 / std::sqrt(5.0));
  EXPECT_FALSE(at_most(1e9).holds(relative_error(zeros, zeros))) << "zeros against zeros prove nothing";
  EXPECT_FALSE(at_most(1e9).holds(relative_error(std::vector<double>{1, kNan}, good)));
  EXPECT_FALSE(at_most(1e9).holds(relative_error(std::vector<double>{1, kInf}, good)));
  EXPECT_FALSE(at_least(0).holds(kNan));
  EXPECT_TRUE(std::isnan(larger(kNan, 1)) && std::isnan(larger(1, kNan)));
  EXPECT_EQ(larger(2, 1), 2);
  EXPECT_EQ(differences(good, good), 0);
  EXPECT_EQ(differences(std::vector<double>{1, kNan}, std::vector<double>{1, kNan}), 1);
}

}  // namespace
}  // namespace patina
