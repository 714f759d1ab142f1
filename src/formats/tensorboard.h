// TensorBoard event files, written: records of protocol buffers. Sources: tensorflow/core/lib/io/record_writer.h (the
// record), tensorflow/core/util/event.proto and framework/summary.proto (field numbers).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace patina {

// Each gives one whole record, to be appended to a file whose name contains "tfevents". wall_seconds counts from 1970.
struct TensorBoardScalar {
  std::string_view tag;
  double value;
};
std::string tensorboard_begin(double wall_seconds);  // the first record of a file
std::string tensorboard_scalars(double wall_seconds, int64_t step, std::span<const TensorBoardScalar> scalars);
std::string tensorboard_text(double wall_seconds, int64_t step, std::string_view tag, std::string_view markdown);

}  // namespace patina
