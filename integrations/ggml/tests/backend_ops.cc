// Two cases for ggml's own test-backend-ops, run by its own gradient check (finite differences), whose source comes
// with each release:
//   bf16     a BF16 first input, only the second is a parameter: an unchanged ggml's CPU backend does not support its
//   gradient strided  the gradient of the product is not contiguous backend_ops bf16|strided [nan]      "nan" plants
//   one in the first input: the case must fail
// Standard output is test-backend-ops's own. GGML_BACKWARD_MM is set by whoever runs this.
#include "support.h"

#define main test_backend_ops_main
#include TEST_BACKEND_OPS
#undef main

struct test_backward_mm : public test_case {
  const ggml_type type;
  const bool strided;
  const bool nan;

  test_backward_mm(ggml_type type, bool strided, bool nan) : type(type), strided(strided), nan(nan) {}

  std::string vars() override { return VARS_TO_STR2(type, strided); }

  // x +- eps lies within 2, where BF16 is exact to 2^-8: the estimate of each slope is off by at most that, and so is
  // twice the measure.
  float grad_eps() override { return 1.0f; }
  double max_maa_err() override { return type == GGML_TYPE_BF16 ? 0x1p-8 : 1e-4; }

  ggml_tensor* build_graph(ggml_context* ctx) override {
    ggml_tensor* a = ggml_new_tensor_2d(ctx, type, 32, 16);
    ggml_set_name(a, "a");
    ggml_tensor* b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 32, 6);
    ggml_set_name(b, "b");
    set_param(ctx, b);
    ggml_tensor* out = ggml_mul_mat(ctx, a, b);
    if (strided) {
      out = ggml_cont(ctx, ggml_transpose(ctx, out));
    }
    ggml_set_name(out, "out");
    return out;
  }
  void initialize_tensors(ggml_context* ctx) override {
    for (ggml_tensor* t = ggml_get_first_tensor(ctx); t != nullptr; t = ggml_get_next_tensor(ctx, t)) {
      if (t->op != GGML_OP_NONE) {
        continue;  // a view would overwrite what it is a view of
      }
      const bool first = strcmp(t->name, "a") == 0;
      // Slopes are sums over a's columns: kept away from zero, so that the relative measure means something.
      init_tensor_uniform(t, first ? 0.5f : -1.0f, first ? 1.5f : 1.0f);
      if (first && nan) {
        const uint32_t pattern = type == GGML_TYPE_BF16 ? 0x7fc0u : 0x7fc00000u;
        ggml_backend_tensor_set(t, &pattern, 0, ggml_type_size(type));
      }
    }
  }
};

int main(int argc, char** argv) {
  const std::string name = argc >= 2 ? argv[1] : "";
  const bool nan = argc == 3 && std::string(argv[2]) == "nan";
  if ((name != "bf16" && name != "strided") || (argc != 2 && !nan)) {
    die("usage: backend_ops bf16|strided [nan]");
  }
  ggml_backend_t backend = make_backend(false, 1);
  test_backward_mm test(name == "bf16" ? GGML_TYPE_BF16 : GGML_TYPE_F32, name == "strided", nan);
#ifdef TEST_BACKEND_OPS_PRINTER
  const std::unique_ptr<printer> output = create_printer(CONSOLE);
  const bool passed = test.eval_grad(backend, nullptr, output.get());
#else
  const bool passed = test.eval_grad(backend, nullptr);
#endif
  std::printf("\n");
  print_stats(stdout);
  ggml_backend_free(backend);
  return passed ? 0 : 1;
}
