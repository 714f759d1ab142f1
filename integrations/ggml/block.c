// backward-mm block begin
// The gradient of MUL_MAT with respect to its second input as a product with a transposed copy of the first,
//     mul_mat(cont(transpose(src0)), grad)   instead of   out_prod(src0, transpose(grad)),
// so that it runs in every type that MUL_MAT runs in. See docs/ggml.md of Patina.
//
// GGML_BACKWARD_MM        unset, empty or "0": off, and the graph is the one of an unchanged ggml; anything else: on
// GGML_BACKWARD_MM_SCOPE  "frozen": only products whose first input needs no gradient; anything else: all
// GGML_BACKWARD_MM_LOG    unset, empty or "0": silent; anything else: what ran is printed when the process ends
// All three are read once per process, at the first such gradient.

// What this process did so far, by name:
//   gate, frozen   -1 before the variables were read, then 0 or 1
//   converted      gradients that became products
//   kept           gradients left an outer product while the gate was on, the sum of:
//   kept_grad      the incoming gradient is not contiguous
//   kept_type      the first input's type has no transposed copy
//   kept_scope     left out by the scope
// -2: no such name.
GGML_API int64_t ggml_backward_mm_stat(const char * name);

static struct {
    bool    read;
    bool    on;
    bool    frozen;
    int64_t converted;
    int64_t kept_grad;
    int64_t kept_type;
    int64_t kept_scope;
} ggml_backward_mm; // guarded by ggml's critical section

static bool ggml_backward_mm_flag(const char * variable) {
    const char * value = getenv(variable);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

static void ggml_backward_mm_print(void) {
    fprintf(stderr,
        "ggml_backward_mm: gate %s, scope %s: converted %" PRId64 ", kept %" PRId64
        " (gradient not contiguous %" PRId64 ", type %" PRId64 ", scope %" PRId64 ")\n",
        ggml_backward_mm.on ? "on" : "off", ggml_backward_mm.frozen ? "frozen" : "all", ggml_backward_mm.converted,
        ggml_backward_mm.kept_grad + ggml_backward_mm.kept_type + ggml_backward_mm.kept_scope, ggml_backward_mm.kept_grad,
        ggml_backward_mm.kept_type, ggml_backward_mm.kept_scope);
}

int64_t ggml_backward_mm_stat(const char * name) {
    ggml_critical_section_start();
    const struct { const char * name; int64_t value; } stats[] = {
        { "gate",       ggml_backward_mm.read ? ggml_backward_mm.on     : -1 },
        { "frozen",     ggml_backward_mm.read ? ggml_backward_mm.frozen : -1 },
        { "converted",  ggml_backward_mm.converted },
        { "kept",       ggml_backward_mm.kept_grad + ggml_backward_mm.kept_type + ggml_backward_mm.kept_scope },
        { "kept_grad",  ggml_backward_mm.kept_grad },
        { "kept_type",  ggml_backward_mm.kept_type },
        { "kept_scope", ggml_backward_mm.kept_scope },
    };
    int64_t result = -2;
    for (size_t i = 0; i < sizeof(stats)/sizeof(stats[0]); i++) {
        if (strcmp(name, stats[i].name) == 0) {
            result = stats[i].value;
        }
    }
    ggml_critical_section_end();
    return result;
}

// A contiguous transposed copy of src0 [n,m,..] -> [m,n,..] in a type that its products do not spoil, or NULL where
// there is none.
static struct ggml_tensor * ggml_backward_mm_transposed(struct ggml_context * ctx, struct ggml_tensor * src0) {
    if (src0->type == GGML_TYPE_F32 || src0->type == GGML_TYPE_BF16) {
        return ggml_cont(ctx, ggml_transpose(ctx, src0));
    }
    if (src0->type == GGML_TYPE_F16) {
        // To F32: a product with an F16 first input would round the gradient to F16, which keeps full precision only
        // down to 6e-5, and gradients are commonly smaller.
        return ggml_cast(ctx, ggml_transpose(ctx, src0), GGML_TYPE_F32);
    }
    if (ggml_is_quantized(src0->type)) {
        // Blocks cannot be copied transposed, their values can. Measured on CPUs: several times faster than the outer
        // product, which decodes every row again for every row of the gradient, and cannot broadcast such a first
        // input at all.
        return ggml_cont(ctx, ggml_transpose(ctx, ggml_cast(ctx, src0, GGML_TYPE_F32)));
    }
    return NULL;
}

static void ggml_backward_mm_read(void) {
    ggml_critical_section_start();
    if (!ggml_backward_mm.read) {
        ggml_backward_mm.read   = true;
        ggml_backward_mm.on     = ggml_backward_mm_flag("GGML_BACKWARD_MM");
        const char * scope      = getenv("GGML_BACKWARD_MM_SCOPE");
        ggml_backward_mm.frozen = scope != NULL && strcmp(scope, "frozen") == 0;
        if (ggml_backward_mm_flag("GGML_BACKWARD_MM_LOG")) {
            atexit(ggml_backward_mm_print);
        }
    }
    ggml_critical_section_end();
}

// The gradient [n,p,qq,rr] of src1, given src0 [n,m,q1,r1] and grad [m,p,qq,rr], or NULL where the outer product is kept.
static struct ggml_tensor * ggml_backward_mm_product(
        struct ggml_context * ctx, struct ggml_tensor * src0, struct ggml_tensor * grad, bool src0_needs_grads) {
    ggml_backward_mm_read();
    if (!ggml_backward_mm.on) { // written once, before this thread came here
        return NULL;
    }
    struct ggml_tensor * product = NULL;
    int64_t * counter = NULL;
    if (ggml_backward_mm.frozen && src0_needs_grads) {
        counter = &ggml_backward_mm.kept_scope;
    } else if (!ggml_is_contiguous(grad)) {
        counter = &ggml_backward_mm.kept_grad;
    } else {
        struct ggml_tensor * transposed = ggml_backward_mm_transposed(ctx, src0);
        if (transposed != NULL) {
            product = ggml_mul_mat(ctx, transposed, grad);
        }
        counter = product != NULL ? &ggml_backward_mm.converted : &ggml_backward_mm.kept_type;
    }
    ggml_critical_section_start();
    (*counter)++;
    ggml_critical_section_end();
    return product;
}
// backward-mm block end

