// What ops cost by their shapes alone: what profiles and estimates of time are made of.
#pragma once

#include <span>

#include "ir/graph.h"

namespace patina {

struct Work {
  // Floating point operations, a multiply-add as two. Counted for products, attention and the output head; everything
  // else is bound by memory and counts none.
  double operations = 0;
  // Every number that is read or written, once: what has to pass between memory and processor at least.
  double bytes = 0;
};

// (query, key) pairs that the mask lets attention see in all sequences of a run, each pair once and not once a head; 0
// for other ops. `in` are the op's inputs; only offsets and first positions are read.
double visible_pairs(const Op& op, std::span<const Tensor> in);

// Of one run of an op on tensors of these shapes; their numbers are not read. An op without a row in the table counts
// bytes alone.
Work work_of(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, double pairs);

}  // namespace patina
