// References of the elementwise ops (ops/elementwise.h).
#pragma once

#include "ops/elementwise.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void add(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = in[0].at(i, j) + in[1].at(i, j);
}

template <typename S>
void scale_by(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const S factor = in[1].at(0);
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = in[0].at(i, j) * factor;
}

template <typename S>
S sigmoid(S z) {
  using std::exp;
  return S(1) / (S(1) + exp(-z));
}

template <typename S>
void silu(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = in[0].at(i, j) * sigmoid(in[0].at(i, j));
}

template <typename S>
void repeat_row(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = in[0].at(j);
}

template <typename S>
void swiglu(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) {
      const S gate = in[0].at(i, j);
      out[0].at(i, j) = gate * sigmoid(gate) * in[1].at(i, j);
    }
}

template <typename S>
void swiglu_grad(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) {
      const S gate = in[0].at(i, j), up = in[1].at(i, j), dy = in[2].at(i, j);
      const S s = sigmoid(gate);
      out[0].at(i, j) = dy * up * s * (S(1) + gate * (S(1) - s));
      out[1].at(i, j) = dy * gate * s;
    }
}

template <typename S>
void gather_rows(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t m = 0; m < out[0].rows(); ++m)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(m, j) = in[0].at(in[1].index(m, in[0].rows()), j);
}

template <typename S>
void scatter_rows(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = S(0);
  for (int64_t m = 0; m < in[0].rows(); ++m)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(in[1].index(m, out[0].rows()), j) = in[0].at(m, j);
}

template <typename S>
void pad_columns(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const int64_t first = static_cast<const PadColumns&>(op).first;
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j)
      out[0].at(i, j) = j >= first && j < first + in[0].columns() ? in[0].at(i, j - first) : S(0);
}

}  // namespace patina::reference
