#include "selftest/self_test.h"

#include <algorithm>
#include <chrono>

#include "ops/copy.h"
#include "quant/decode.h"
#include "selftest/synthetic_dit.h"
#include "selftest/synthetic_lm.h"
#include "selftest/tables.h"

namespace patina {

namespace {

std::vector<DType> decodable_types() {
  std::vector<DType> types;
  for (const DTypeInfo& row : all_dtypes())
    if (is_decodable(row.dtype)) types.push_back(row.dtype);
  return types;
}

const std::vector<DType> kModelTypes = {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K};

bool is_wanted(const Rung& rung, std::span<const std::string> only) {
  return only.empty() || std::ranges::find(only, rung.name) != only.end();
}

bool passes(const RungRow& row) {
  const std::vector<Bar>& bars = row.rung->bars;
  if (!row.error.empty() || row.measured.size() != bars.size()) return false;
  const bool mm = row.formulation == Formulation::kMm && !row.is_outprod;
  for (size_t i = 0; i < bars.size(); ++i)
    if ((mm || !bars[i].of_mm) && !bars[i].holds(row.measured[i])) return false;
  return true;
}

void run_row(RungContext& context, RungRow& row) {
  context.formulation = row.is_outprod ? Formulation::kOutprod : row.formulation.value_or(Formulation::kFused);
  const auto start = std::chrono::steady_clock::now();
  try {
    row.measured = row.rung->measure(context);
  } catch (const std::exception& error) {
    row.error = error.what();
  }
  row.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  row.passed = passes(row);
}

// Types outermost, so that oracles of a type are not needed again.
void run_rung(RungContext& context, const Rung& rung, std::string_view subject, std::span<const DType> types,
              std::span<const Formulation> formulations, FunctionRef<void(const RungRow&)> observe) {
  for (const DType dtype : types) {
    context.dtype = dtype;
    std::optional<RungRow> outprod;
    for (const Formulation formulation : formulations) {
      RungRow row;
      row.rung = &rung;
      row.subject = subject;
      if (rung.repeats != Repeats::kOnce) row.dtype = dtype;
      if (rung.repeats == Repeats::kByFormulation) {
        row.formulation = formulation;
        row.is_outprod = formulation == Formulation::kMm && !can_copy_transposed(dtype);
      }
      if (row.is_outprod && outprod) {
        row.measured = outprod->measured;
        row.error = outprod->error;
        row.passed = outprod->passed;
        row.is_copy = true;
      } else {
        run_row(context, row);
        if (formulation == Formulation::kOutprod) outprod = row;
      }
      observe(row);
      if (rung.repeats != Repeats::kByFormulation) break;
    }
    if (rung.repeats == Repeats::kOnce) break;
  }
}

}  // namespace

Subject product_subject() {
  return {"product", {}, {product_rungs(), attention_rungs(), rule_rungs()}, decodable_types()};
}

namespace {

template <typename Model>
Subject model_subject(std::string_view name, Rungs own) {
  return {name,
          [](DType dtype, const std::filesystem::path& directory, ThreadPool& pool) {
            return std::make_unique<Model>(dtype, directory, pool);
          },
          {adapter_rungs(), training_rungs(), own},
          kModelTypes};
}

}  // namespace

Subject lm_subject() { return model_subject<SyntheticLm>("lm", lm_rungs()); }
Subject dit_subject() { return model_subject<SyntheticDit>("dit", dit_rungs()); }

void check_only(std::span<const Subject> subjects, std::span<const std::string> only) {
  std::vector<std::string_view> known;
  std::string list;
  for (const Subject& subject : subjects)
    for (const Rungs& table : subject.tables)
      for (const Rung& rung : table) {
        if (std::ranges::find(known, rung.name) != known.end()) continue;
        known.push_back(rung.name);
        list += (list.empty() ? "" : ", ") + std::string(rung.name);
      }
  for (const std::string& name : only)
    if (std::ranges::find(known, name) == known.end())
      fail(Error::Kind::kUsage, "--only: \"{}\" is no rung; choose from {}", name, list);
}

void run_self_test(std::span<const Subject> subjects, const SelfTestOptions& options, const TestedParts& parts,
                   ThreadPool& pool, FunctionRef<void(const RungRow&)> observe) {
  check_only(subjects, options.only);
  std::vector<Formulation> formulations;  // mm last, which may be what outprod was
  for (const Formulation formulation : {Formulation::kFused, Formulation::kOutprod, Formulation::kMm})
    if (options.formulations.empty() ||
        std::ranges::find(options.formulations, formulation) != options.formulations.end())
      formulations.push_back(formulation);
  for (const Subject& subject : subjects) {
    RungContext context(parts, subject.make_model, pool);
    const std::vector<DType>& types = options.types.empty() ? subject.types : options.types;
    for (const Rungs& table : subject.tables)
      for (const Rung& rung : table)
        if (is_wanted(rung, options.only)) run_rung(context, rung, subject.name, types, formulations, observe);
  }
}

}  // namespace patina
