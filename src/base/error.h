// Errors: one exception type for everything a user can cause, one for a broken invariant of ours.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace patina {

// A mistake in what we were given (file, flag, data). what() is one line that names the file, the tensor or line, what
// was expected, what was found, and what to do. The command line prints it and exits.
class Error : public std::runtime_error {
 public:
  enum class Kind { kUsage, kModel, kData, kMemory, kNonFinite, kIo };
  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

template <typename... Args>
[[noreturn]] void fail(Error::Kind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// A broken invariant of the program itself; the text carries the source position and the values.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace patina

// Always on: PATINA_CHECK(a == b, "a {} b {}", a, b).
#define PATINA_CHECK(condition, ...)                                                            \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::patina::detail::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
