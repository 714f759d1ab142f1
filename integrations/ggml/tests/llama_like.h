// A transformer of the llama family with frozen weights of any type and trainable adapters: LoRA on the attention's
// products, LoKr or LoRA on the feed-forward's. Grouped heads, rotary positions, causal attention, a batch axis.
#pragma once

#include "support.h"

struct LlamaShape {
  int64_t layers, width, heads, groups, head_width, feed, vocabulary, tokens, batch, rank;
  bool lokr;    // on the feed-forward's products; else LoRA
  bool folded;  // the batch lies in the rows of the activations; else it is an axis of its own, over which the weights
                // broadcast
};

class LlamaLike {
 public:
  /// Frozen weights of type `type`, or in F32 with the values that `type` holds of them.
  LlamaLike(Graph& g, const LlamaShape& shape, ggml_type type, bool decoded = false)
      : g_(g),
        ctx_(g.nodes()),
        s_(shape),
        type_(decoded ? GGML_TYPE_F32 : type),
        through_(decoded ? type : GGML_TYPE_F32) {}

  /// The mean cross-entropy against fixed random labels.
  ggml_tensor* loss() {
    Random random(7);
    std::vector<int32_t> tokens, positions;
    std::vector<float> labels(s_.vocabulary * s_.tokens * s_.batch, 0.0f), mask(s_.tokens * s_.tokens, 0.0f);
    for (int64_t i = 0; i < s_.tokens * s_.batch; i++) {
      tokens.push_back(static_cast<int32_t>(random.uniform() * static_cast<double>(s_.vocabulary)));
      labels[i * s_.vocabulary + static_cast<int64_t>(random.uniform() * static_cast<double>(s_.vocabulary))] = 1.0f;
    }
    for (int64_t query = 0; query < s_.tokens; query++) {
      positions.push_back(static_cast<int32_t>(query));
      for (int64_t key = query + 1; key < s_.tokens; key++) {
        mask[query * s_.tokens + key] = -INFINITY;
      }
    }
    positions_ = g_.integers("positions", positions);
    mask_ = g_.floats("mask", {s_.tokens, s_.tokens}, mask);

    ggml_tensor* x = ggml_get_rows(ctx_, g_.leaf("embedding", GGML_TYPE_F32, {s_.width, s_.vocabulary}),
                                   g_.integers("tokens", tokens));
    x = rows(x, s_.width);
    for (int64_t layer = 0; layer < s_.layers; layer++) {
      const std::string name = "layer" + std::to_string(layer) + ".";
      x = ggml_add(ctx_, x, attention(name, norm(name + "attention_norm", x)));
      x = ggml_add(ctx_, x, feed_forward(name, norm(name + "feed_norm", x)));
    }
    x = frozen("head", norm("norm", x), s_.width, s_.vocabulary);
    x = ggml_reshape_2d(ctx_, x, s_.vocabulary, s_.tokens * s_.batch);
    return ggml_cross_entropy_loss(ctx_, x, g_.floats("labels", {s_.vocabulary, s_.tokens * s_.batch}, labels));
  }

 private:
  /// [width, T, B], or [width, T * B].
  ggml_tensor* rows(ggml_tensor* x, int64_t width) {
    return s_.folded ? ggml_reshape_2d(ctx_, x, width, s_.tokens * s_.batch)
                     : ggml_reshape_3d(ctx_, x, width, s_.tokens, s_.batch);
  }
  ggml_tensor* norm(const std::string& name, ggml_tensor* x) {
    return ggml_mul(ctx_, ggml_rms_norm(ctx_, x, 1e-5f),
                    g_.floats(name, {s_.width}, std::vector<float>(s_.width, 1.0f)));
  }
  ggml_tensor* frozen(const std::string& name, ggml_tensor* x, int64_t in, int64_t out) {
    return ggml_mul_mat(ctx_, g_.leaf(name, type_, {in, out}, 1.0f / std::sqrt(static_cast<float>(in)), through_), x);
  }
  ggml_tensor* lora(const std::string& name, ggml_tensor* x, int64_t in, int64_t out) {
    ggml_tensor* a = g_.param(name + ".lora_a", {in, s_.rank}, 1.0f / std::sqrt(static_cast<float>(in)));
    ggml_tensor* b = g_.param(name + ".lora_b", {s_.rank, out}, 0.1f);
    ggml_tensor* delta = ggml_mul_mat(ctx_, b, ggml_mul_mat(ctx_, a, x));
    return ggml_add(ctx_, frozen(name, x, in, out), ggml_scale(ctx_, delta, 2.0f));
  }
  /// The Kronecker product of w1 [4, 4] and w2 [in / 4, out / 4], applied as two contractions; both gradients come
  /// through a permuted view.
  ggml_tensor* lokr(const std::string& name, ggml_tensor* x, int64_t in, int64_t out) {
    constexpr int64_t kFactor = 4;
    ggml_tensor* w1 = g_.param(name + ".lokr_w1", {kFactor, kFactor}, 0.5f);
    ggml_tensor* w2 = g_.param(name + ".lokr_w2", {in / kFactor, out / kFactor}, 0.1f);
    ggml_tensor* t = ggml_reshape_3d(ctx_, x, in / kFactor, kFactor, x->ne[1] * x->ne[2]);
    t = ggml_cont(ctx_, ggml_permute(ctx_, ggml_mul_mat(ctx_, w2, t), 1, 0, 2, 3));
    t = ggml_cont(ctx_, ggml_permute(ctx_, ggml_mul_mat(ctx_, w1, t), 1, 0, 2, 3));
    return ggml_add(ctx_, frozen(name, x, in, out), rows(t, out));
  }
  ggml_tensor* feed_site(const std::string& name, ggml_tensor* x, int64_t in, int64_t out) {
    return s_.lokr ? lokr(name, x, in, out) : lora(name, x, in, out);
  }

  /// [C, H, T, B] -> [C, T, H * B], rotated by its positions.
  ggml_tensor* rotated(ggml_tensor* x, int64_t heads) {
    x = ggml_reshape_4d(ctx_, x, s_.head_width, heads, s_.tokens, s_.batch);
    x = ggml_rope(ctx_, x, positions_, static_cast<int>(s_.head_width), 0);
    x = ggml_cont(ctx_, ggml_permute(ctx_, x, 0, 2, 1, 3));
    return ggml_reshape_3d(ctx_, x, s_.head_width, s_.tokens, heads * s_.batch);
  }
  ggml_tensor* attention(const std::string& name, ggml_tensor* x) {
    const int64_t inner = s_.heads * s_.head_width, shared = s_.groups * s_.head_width;
    ggml_tensor* q = rotated(lora(name + "q", x, s_.width, inner), s_.heads);
    ggml_tensor* k = rotated(lora(name + "k", x, s_.width, shared), s_.groups);
    ggml_tensor* v =
        ggml_reshape_4d(ctx_, lora(name + "v", x, s_.width, shared), s_.head_width, s_.groups, s_.tokens, s_.batch);
    v = ggml_cont(ctx_, ggml_permute(ctx_, v, 1, 2, 0, 3));
    v = ggml_reshape_3d(ctx_, v, s_.tokens, s_.head_width, s_.groups * s_.batch);

    ggml_tensor* p =
        ggml_mul_mat(ctx_, k, q);  // [T, T, H * B], the batch beside the heads: each group serves its own heads
    p = ggml_soft_max_ext(ctx_, p, mask_, 1.0f / std::sqrt(static_cast<float>(s_.head_width)), 0.0f);
    ggml_tensor* y = ggml_mul_mat(ctx_, v, p);  // [C, T, H * B]
    y = ggml_cont(ctx_, ggml_permute(ctx_, y, 0, 2, 1, 3));
    y = ggml_reshape_3d(ctx_, y, inner, s_.batch, s_.tokens);
    y = ggml_cont(ctx_, ggml_permute(ctx_, y, 0, 2, 1, 3));
    return lora(name + "o", rows(y, inner), inner, s_.width);
  }
  ggml_tensor* feed_forward(const std::string& name, ggml_tensor* x) {
    ggml_tensor* gate = ggml_silu(ctx_, feed_site(name + "gate", x, s_.width, s_.feed));
    ggml_tensor* up = feed_site(name + "up", x, s_.width, s_.feed);
    return feed_site(name + "down", ggml_mul(ctx_, gate, up), s_.feed, s_.width);
  }

  Graph& g_;
  ggml_context* ctx_;
  LlamaShape s_;
  ggml_type type_;
  ggml_type through_;
  ggml_tensor* positions_ = nullptr;
  ggml_tensor* mask_ = nullptr;
};
