// Runs a test body once for every instruction set that was compiled and that this machine has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace patina {

template <typename Body>
void for_each_target(Body body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace patina
