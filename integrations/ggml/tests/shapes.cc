// Both formulations of the gradient give the same shape for every legal broadcast, and ggml refuses both for every
// illegal one.
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "support.h"

namespace {

using Shape = std::array<int64_t, 4>;

/// The gradient's shape for a first input [n, m, q1, r1] and a gradient [m', p, qq, rr].
Shape gradient_shape(bool product, const Shape& first, const Shape& gradient) {
  ggml_context* ctx = ggml_init({ggml_tensor_overhead() * 16, nullptr, true});
  ggml_tensor* a = ggml_new_tensor(ctx, GGML_TYPE_F32, 4, first.data());
  ggml_tensor* g = ggml_new_tensor(ctx, GGML_TYPE_F32, 4, gradient.data());
  ggml_tensor* dx = product ? ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, a)), g)
                            : ggml_out_prod(ctx, a, ggml_transpose(ctx, g));
  const Shape shape = {dx->ne[0], dx->ne[1], dx->ne[2], dx->ne[3]};
  ggml_free(ctx);
  return shape;
}

bool refused(bool product, const Shape& first, const Shape& gradient) {
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    gradient_shape(product, first, gradient);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

int main() {
  setenv("GGML_NO_BACKTRACE", "1", 1);
  int legal = 0, illegal = 0, wrong = 0;
  const auto illegal_case = [&](const Shape& first, const Shape& gradient) {
    illegal++;
    if (!refused(true, first, gradient) || !refused(false, first, gradient)) {
      wrong++;
    }
  };
  for (const int64_t q1 : {1, 2, 3}) {
    for (const int64_t r1 : {1, 2}) {
      for (const int64_t qq : {1, 2, 4, 6}) {
        for (const int64_t rr : {1, 2, 3}) {
          const Shape first = {8, 5, q1, r1}, gradient = {5, 7, qq, rr};
          if (qq % q1 != 0 || rr % r1 != 0) {
            illegal_case(first, gradient);
            continue;
          }
          legal++;
          if (gradient_shape(true, first, gradient) != Shape{8, 7, qq, rr} ||
              gradient_shape(false, first, gradient) != Shape{8, 7, qq, rr}) {
            wrong++;
          }
        }
      }
    }
  }
  illegal_case({8, 5, 1, 1}, {6, 7, 1, 1});  // the widths differ
  std::printf("%d legal, %d illegal, %d wrong\n", legal, illegal, wrong);
  return wrong == 0 && legal > 0 && illegal > 0 ? 0 : 1;
}
