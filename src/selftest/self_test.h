// The self-test: runs rungs on their subjects and gathers a row for each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "selftest/context.h"

namespace patina {

// What rungs are run on: a model and the tables that are asked of it; or no model.
struct Subject {
  std::string_view name;  // "product", "lm", "dit"
  ModelFactory make_model;
  std::vector<Rungs> tables;
  std::vector<DType> types;  // of its weights, where none are asked for
};
Subject product_subject();
Subject lm_subject();
Subject dit_subject();

struct SelfTestOptions {
  std::vector<std::string> only;          // names of rungs; empty: all
  std::vector<Formulation> formulations;  // empty: all
  std::vector<DType> types;               // empty: each subject's own
};

// A rung, once.
struct RungRow {
  const Rung* rung = nullptr;
  std::string_view subject;
  std::optional<DType> dtype;  // absent where the rung does not depend on it
  std::optional<Formulation> formulation;
  // mm of a weight that cannot be copied transposed is outprod, node for node: that is what ran, or, where outprod has
  // a row of its own, what this one is a copy of.
  bool is_outprod = false, is_copy = false;
  std::vector<double> measured;  // in the order of the rung's bars; empty where it threw
  std::string error;             // what it threw
  bool passed = false;
  double ms = 0;
};

// Error(kUsage) where a name in `only` is no rung of these subjects, listing those that are.
void check_only(std::span<const Subject> subjects, std::span<const std::string> only);

// `observe` gets each row when it is there; rows of a rung come one after another.
void run_self_test(std::span<const Subject> subjects, const SelfTestOptions& options, const TestedParts& parts,
                   ThreadPool& pool, FunctionRef<void(const RungRow&)> observe);

}  // namespace patina
