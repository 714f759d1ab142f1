// The yardstick of every benchmark: OpenBLAS's sgemm, loaded at run time. Nothing else of Patina uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace patina {

inline constexpr const char* kOpenBlasLibrary = "libopenblas.so.0";

class Yardstick {
 public:
  // Null where the system has no such library or it is not OpenBLAS. The library stays loaded.
  static std::unique_ptr<Yardstick> load(const char* library, int threads);

  // C [m,n] = A [m,k] . B with B [k,n], or with `transposed` A . B^T with B [n,k]. Dense F32, sizes below 2^31.
  void sgemm(bool transposed, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) const;

  const std::string& config() const { return config_; }  // version and build options, as OpenBLAS tells them
  const std::string& core() const { return core_; }      // the processor whose kernels it runs
  int threads() const { return threads_; }               // it may have been built for fewer than were asked for

 private:
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                         int lda, const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm sgemm_ = nullptr;
  std::string config_, core_;
  int threads_ = 0;
};

}  // namespace patina
