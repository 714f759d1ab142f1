// The trivial backend: the float references behind the executor. It shows that graph and models know no device, and
// checks plans against kernels that nobody tuned. Slow; its kernels allocate.
#pragma once

#include "backend/backend.h"

namespace patina {

const Backend& reference_backend();

}  // namespace patina
