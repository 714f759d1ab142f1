#include "measure/yardstick.h"

#include <dlfcn.h>

#include "base/error.h"

namespace patina {

namespace {

// Of cblas.h.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

int narrow(int64_t size) {
  PATINA_CHECK(size >= 0 && size <= INT32_MAX, "size {}", size);
  return static_cast<int>(size);
}

}  // namespace

std::unique_ptr<Yardstick> Yardstick::load(const char* library, int threads) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  auto yardstick = std::make_unique<Yardstick>();
  void (*set_threads)(int);
  int (*get_threads)();
  char* (*get_config)(), *(*get_core)();
  if (!find(handle, "cblas_sgemm", yardstick->sgemm_) || !find(handle, "openblas_set_num_threads", set_threads) ||
      !find(handle, "openblas_get_num_threads", get_threads) || !find(handle, "openblas_get_config", get_config) ||
      !find(handle, "openblas_get_corename", get_core))
    return nullptr;
  set_threads(threads);
  yardstick->threads_ = get_threads();
  yardstick->config_ = get_config();
  yardstick->core_ = get_core();
  return yardstick;
}

void Yardstick::sgemm(bool transposed, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                      float* c) const {
  sgemm_(kRowMajor, kNoTranspose, transposed ? kTranspose : kNoTranspose, narrow(m), narrow(n), narrow(k), 1.0f, a,
         narrow(k), b, narrow(transposed ? k : n), 0.0f, c, narrow(n));
}

}  // namespace patina
