                // backward-mm statement begin
                {
                    struct ggml_tensor * product = ggml_backward_mm_product(ctx, src0, grad, src0_needs_grads);
                    if (product != NULL) {
                        ggml_add_or_set(ctx, cgraph, isrc1, product);
                        break;
                    }
                }
                // backward-mm statement end
