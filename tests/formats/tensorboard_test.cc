#include "formats/tensorboard.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace patina {
namespace {

// The golden was written by the tensorboard package itself: tools/make_tensorboard_golden.py.
TEST(TensorBoard, RecordsAreThoseThatTheToolReads) {
  const TensorBoardScalar scalars[] = {{"loss/train", 2.5}, {"step/learning_rate", 1e-4}};
  const std::string records = tensorboard_begin(1.7e9) + tensorboard_text(1.7e9, 1, "configuration", "rank 16") +
                              tensorboard_scalars(1700000001.5, 300, scalars);
  EXPECT_TRUE(records == read_file(PATINA_SOURCE_DIR "/tests/formats/goldens/events.out.tfevents.golden"));
}

}  // namespace
}  // namespace patina
