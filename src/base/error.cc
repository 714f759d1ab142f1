#include "base/error.h"

namespace patina::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(fmt::format("internal error at {}:{}: {} does not hold: {}", file, line, condition, message));
}

}  // namespace patina::detail
