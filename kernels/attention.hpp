// Scaled dot-product attention, one (batch, head) at a time.
//
//   S = q k^T / sqrt(dim)      P = softmax of each row of S      out = P v
//   dV = P^T dOut    dP = dOut v^T    dS = P (dP - D), D: each row's dot product of dOut and out
//   dQ = dS k / sqrt(dim)      dK = dS^T q / sqrt(dim)
//
// With causal attention, row i of S ends at column i. The forward pass does not store P. The
// backward pass recomputes P from the maximum and the sum of each row (two numbers instead of
// `tokens`), as in FlashAttention (Dao et al., 2022).
//
// q, k and v may have any strides, e.g. interleaved in the result of a single Linear layer.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/half.hpp"
#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// A (batch, head, token, dim) tensor whose last dimension is contiguous.
template <class T>
struct Heads {
  T* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, token_stride = 0;

  [[nodiscard]] constexpr T* head(std::int64_t b, std::int64_t h) const {
    return data + b * batch_stride + h * head_stride;
  }
  // NOLINTNEXTLINE(google-explicit-constructor): callers pass mutable data where const is expected
  constexpr operator Heads<const T>() const {
    return {data, batch_stride, head_stride, token_stride};
  }
};

struct AttentionShape {
  std::int64_t batch = 0, heads = 0, tokens = 0, dim = 0;
  bool causal = false;
  [[nodiscard]] constexpr std::int64_t rows() const { return batch * heads * tokens; }
};

// Statistics of one softmax row, saved for the backward pass.
template <class T>
struct RowStatistic {
  T largest = 0;      // of the scaled scores
  T inverse_sum = 0;  // 1 / sum of exp(score - largest)
};

template <class T>
struct AttentionSaved {
  Heads<const T> q, k, v, out;
  std::span<const RowStatistic<T>> statistics;
};

constexpr std::int64_t kByShape = -1;
template <class T>
void look(Operands& o, const Heads<T>& /*heads*/) {
  o.add<T>(kByShape);  // AttentionShape is the last argument, and its look() sets the size
}
template <class T>
void look(Operands& o, const AttentionSaved<T>& saved) {
  look(o, saved.q);
  look(o, saved.k);
  look(o, saved.v);
  look(o, saved.out);
  look(o, saved.statistics);
}
inline void look(Operands& o, const AttentionShape& s) {
  const auto elements = static_cast<double>(s.rows() * s.dim);
  for (Operand& operand : o.all)
    if (operand.elements == kByShape)
      operand = {elements, elements * -operand.bytes, operand.written};
  const auto tokens = static_cast<double>(s.tokens);
  o.pairs = elements * (s.causal ? (tokens + 1) / 2 : tokens);
}

namespace cpu {
using kernels::AttentionSaved, kernels::AttentionShape, kernels::Heads, kernels::RowStatistic;
}

// Writes out and statistics. The latter must have shape.rows() elements.
template <class T>
using AttentionFn = void(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
                         std::span<RowStatistic<T>> statistics, const AttentionShape& shape);
RINGSMITH_KERNEL(attention, AttentionFn)

// Overwrites dq, dk and dv.
template <class T>
using AttentionBackwardFn = void(Heads<const T> dout, const AttentionSaved<T>& saved, Heads<T> dq,
                                 Heads<T> dk, Heads<T> dv, const AttentionShape& shape);
RINGSMITH_KERNEL(attention_backward, AttentionBackwardFn)

// Attention on tensor cores: operands and results are bf16, sums and statistics are float. On the
// CPU, or if has_attention_bf16() is false, the caller widens the operands to float. Scaled scores
// are -infinity or below 2^30 in magnitude. If larger scores are the largest of a row, their
// rounding error exceeds the range of exp, and the result can be NaN.
struct AttentionBf16Saved {
  Heads<const bf16> q, k, v, out;
  std::span<const RowStatistic<float>> statistics;
};
namespace cuda {
// True if the current device has tensor cores for bf16, dim is 1 to 128, and there are at most
// 4,194,240 tokens and 65,535 batches. On the emulator, where tensor cores are slow, version 8 or 9
// of the matrix product must also be selected.
[[nodiscard]] bool has_attention_bf16(const AttentionShape& shape);
void attention_bf16(Heads<const bf16> q, Heads<const bf16> k, Heads<const bf16> v, Heads<bf16> out,
                    std::span<RowStatistic<float>> statistics, const AttentionShape& shape);
void attention_backward_bf16(Heads<const bf16> dout, const AttentionBf16Saved& saved,
                             Heads<bf16> dq, Heads<bf16> dk, Heads<bf16> dv,
                             const AttentionShape& shape);
}  // namespace cuda

namespace cpu::fast {
AttentionFn<float> attention;
AttentionBackwardFn<float> attention_backward;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
