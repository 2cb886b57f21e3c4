// The differentiable operations, with PyTorch's names and broadcasting. Comments state the shapes.
// If shapes do not fit, a function throws a UsageError that names the operation and the shapes. If
// the operands of add, sub, mul and div have two different dtypes among f32, f16 and bf16, the
// result is f32, except that a tensor without dimensions takes the other operand's dtype.
//
// Operands have floating dtypes. f16 and bf16 results are rounded once, from f32
// (runtime/tensor/raw.hpp). Autocast guards change the dtype (runtime/autograd/autocast.hpp).
//
// Defined in functions/elementwise.cpp, reduce.cpp, shape.cpp, linear.cpp (products and embedding),
// softmax.cpp (with losses), norm.cpp, conv.cpp (with pooling), attention.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// ---- element-wise ----
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor neg(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
enum class Gelu : std::uint8_t { erf, tanh };
Tensor gelu(const Tensor& x, Gelu approximate = Gelu::erf);
// mask: a bool tensor that broadcasts to x's shape
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
// Draws the mask from the default generator or, on a GPU, from the device's generator.
Tensor dropout(const Tensor& x, double p, bool training);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }

// ---- reductions; empty dims: all dimensions ----
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor var(const Tensor& x, int dim, bool unbiased = true, bool keepdim = false);
Tensor max(const Tensor& x);  // equal maxima share the gradient evenly
// Returns the values and their i64 indices.
std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim = false);

// ---- shape: views where possible ----
Tensor view(const Tensor& x, const Shape& sizes);
Tensor reshape(const Tensor& x, const Shape& sizes);
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor permute(const Tensor& x, const std::vector<int>& dims);
Tensor expand(const Tensor& x, const Shape& sizes);
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t stop,
             std::int64_t step = 1);
Tensor select(const Tensor& x, int dim, std::int64_t index);
Tensor squeeze(const Tensor& x, int dim);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);
Tensor to(const Tensor& x, Device device);  // itself if already there
Tensor to(const Tensor& x, DType dtype);    // itself if it has this dtype
// Records y, which holds the values of x in another floating dtype, as to(x, y.dtype()).
Tensor record_conversion(const Tensor& x, const Tensor& y);
Tensor cat(const std::vector<Tensor>& tensors, int dim);

// ---- products ----
Tensor matmul(const Tensor& a, const Tensor& b);  // (..., m, k) x (..., k, n) -> (..., m, n)
// x (..., in), weight (out, in), bias (out)
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// linear(gelu(linear(x, up_weight, up_bias), Gelu::tanh), down_weight, down_bias). On a device,
// cuBLASLt computes GELU and its slope with 16-bit products: GELU is then rounded once less.
Tensor feed_forward(const Tensor& x, const Tensor& up_weight, const Tensor& up_bias,
                    const Tensor& down_weight, const Tensor& down_bias);

// ---- softmax and losses ----
Tensor softmax(const Tensor& x, int dim);
Tensor log_softmax(const Tensor& x, int dim);
enum class Reduction : std::uint8_t { mean, sum, none };
Tensor nll_loss(const Tensor& log_probs, const Tensor& target,
                Reduction reduction = Reduction::mean, std::int64_t ignore_index = -100);
// x (n, classes), target (n) of i64. The mean is over the targets that are not ignored.
Tensor cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                     std::int64_t ignore_index = -100, double label_smoothing = 0.0);
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean);

// ---- normalisation ----
// lowered: for the operand of a product. Under autocast the result is converted as the product
// would convert it, on a GPU by the same kernel: the same bits, and 6 bytes less per element.
enum class NormResult : std::uint8_t { plain, lowered };
// Normalises over the last dimension.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  NormResult result = NormResult::plain);
// sum = x + residual and normed = layer_norm(sum). On a GPU, each direction is a single kernel if
// the shapes are equal and x is f32 or f64. The bits are the same either way.
struct AddNorm {
  Tensor sum, normed;
};
AddNorm add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                       const Tensor& bias, double eps = 1e-5,
                       NormResult result = NormResult::plain);
// x (n, c) or (n, c, h, w). Training updates the running statistics in place.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum = 0.1, double eps = 1e-5);

// ---- convolution and pooling, NCHW ----
struct Pair {
  std::int64_t h = 1, w = 1;
};
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride = {1, 1},
              Pair padding = {0, 0}, Pair dilation = {1, 1}, std::int64_t groups = 1);
Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding = {0, 0});
Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding = {0, 0},
                  bool count_include_pad = true);
Tensor global_avg_pool2d(const Tensor& x);  // (n, c, h, w) -> (n, c, 1, 1)

// ---- models ----
Tensor embedding(const Tensor& weight, const Tensor& index);  // (v, d), i64 (...) -> (..., d)
// q, k, v (b, h, t, d) -> (b, h, t, d): softmax(q k^T / sqrt(d) [causal]) v
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal);
// The fused form for the GPT, without transposed copies: qkv (b, t, 3*c), heads h -> (b, t, c).
Tensor attention_qkv(const Tensor& qkv, int heads, bool causal);

}  // namespace ringsmith
