// Matrix products, and the Linear layer made of them.
//
//   y  = x w^T + b      (n, out) = (n, in) (out, in)^T
//   dx = dy w           dw = dy^T x          db = column sums of dy
//
// A Matrix has both strides, so a transpose only swaps them, and a batch of rows of a larger tensor
// needs no copy. In the oracle, every element of a product is one sum over ascending k that rounds
// each product and each addition. In the fast version, every element is a chain of fused
// multiply-adds in the same order (cpu/fast/gemm.cpp), unless OpenBLAS is selected (set_products).
//
// Products of f16 and bf16 operands are accumulated in float, in which each product is exact unless
// it overflows or underflows. Each element of the result is rounded to 16 bits once, at the end.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/copy.hpp"
#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// Element (r, c) is data[r * row_stride + c * col_stride].
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0;
  std::int64_t row_stride = 0, col_stride = 1;

  [[nodiscard]] constexpr Matrix t() const { return {data, cols, rows, col_stride, row_stride}; }
  constexpr T& operator()(std::int64_t r, std::int64_t c) const {
    return data[r * row_stride + c * col_stride];
  }
  // NOLINTNEXTLINE(google-explicit-constructor): callers pass mutable data where const is expected
  constexpr operator Matrix<const T>() const { return {data, rows, cols, row_stride, col_stride}; }
};

template <class T>
constexpr Matrix<T> row_major(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, 1};
}

enum class Store : std::uint8_t { replace, add };

// A batch of products. a, b, c: distance from one matrix to the next in each operand, in elements.
struct Batch {
  std::int64_t count = 1;
  std::int64_t a = 0, b = 0, c = 0;
};

// Called for the operand (m, k), then for (k, n) (Linear: w (n, k)), then for the result (m, n).
template <class T>
void look(Operands& o, const Matrix<T>& m) {
  if (++o.matrices == 1) o.inner = static_cast<double>(m.cols);
  if (o.matrices == 3) o.pairs = o.inner * static_cast<double>(m.rows * m.cols);
  o.add<T>(m.rows * m.cols);
}
inline void look(Operands& o, const Batch& batch) { o.times = static_cast<double>(batch.count); }
inline void look(Operands& o, const Store& store) { o.added = store == Store::add; }

namespace cpu {

using kernels::Matrix, kernels::row_major, kernels::Store;

// c = a b, or c += a b. c must not overlap a or b.
template <class T>
void matmul(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, Store store = Store::replace);
// Computes matmul() for every product of a batch; a, b and c are the matrices of the first product.
// The results must not overlap.
template <class T>
void matmul_batch(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const Batch& batch,
                  Store store = Store::replace);
// sums[c] = (or +=) the sum of column c of x. The oracle adds in PyTorch's order (cpu/cascade.hpp).
// Devices also sum f16 and bf16, in float, and round each sum once.
template <class T>
void column_sum(Matrix<const T> x, std::span<T> sums, Store store = Store::replace);

}  // namespace cpu

namespace cuda {

template <class T>
void matmul(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, Store store = Store::replace);
template <class T>
void matmul_batch(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const Batch& batch,
                  Store store = Store::replace);
template <class T>
void column_sum(Matrix<const T> x, std::span<T> sums, Store store = Store::replace);

// Computes column_sum(dy, db) and matmul(dy^T, x, dw), for f16 and bf16. cuBLASLt reads dy once for
// both. uses_cublaslt() says whether cuBLASLt is the version in use.
template <class T>
void weight_gradients(Matrix<const T> dy, Matrix<const T> x, Matrix<T> dw, std::span<T> db,
                      Store store);
[[nodiscard]] bool uses_cublaslt();

// argument = x w^T + bias and y = GELU(argument), tanh's form, for f16 and bf16. cuBLASLt computes
// both in one product, and GELU of sums that are not rounded. argument and y are contiguous.
template <class T>
void linear_gelu(Matrix<const T> x, Matrix<const T> w, std::span<const T> bias, Matrix<T> argument,
                 Matrix<T> y);
// dx = dy w, times GELU's slope at `argument`: the gradient of GELU's argument in
// linear(GELU(argument), w). cuBLASLt computes both in one product. argument and dx are contiguous.
template <class T>
void gelu_gradient(Matrix<const T> dy, Matrix<const T> w, Matrix<const T> argument, Matrix<T> dx);

}  // namespace cuda

RINGSMITH_ON_DEVICE_TYPED(matmul)
RINGSMITH_ON_DEVICE_TYPED(matmul_batch)
RINGSMITH_ON_DEVICE_TYPED(column_sum)

// y = x w^T + bias. y is contiguous. bias is empty or has one element per column of y.
template <class T>
using LinearFn = void(Matrix<const T> x, Matrix<const T> w, std::span<const T> bias, Matrix<T> y);
RINGSMITH_KERNEL(linear, LinearFn)

// Overloads for f16 and bf16. The kernels above are for float and double.
template <class T>
requires kIsHalf<T>
void matmul(Device device, Matrix<T> a, Matrix<T> b, Matrix<T> c, Store store = Store::replace) {
  RINGSMITH_PROFILED(matmul, Matrix<const T>(a), Matrix<const T>(b), c, store)
  if (device.is_cpu()) return cpu::matmul<T>(a, b, c, store);
  const DeviceGuard current(device);
  cuda::matmul<T>(a, b, c, store);
}
template <class T>
requires kIsHalf<T>
void linear(Device device, Matrix<T> x, Matrix<T> w, std::span<const T> bias, Matrix<T> y) {
  RINGSMITH_PROFILED(linear, Matrix<const T>(x), Matrix<const T>(w), bias, y)
  if (device.is_cpu()) return cpu::linear<T>(x, w, bias, y);
  const DeviceGuard current(device);
  cuda::linear<T>(x, w, bias, y);
}
// dw = (or +=) dy^T x and db = the column sums of dy: the gradients of linear's weight and bias.
// Devices only.
template <class T>
requires kIsHalf<T>
void weight_gradients(Device device, Matrix<T> dy, Matrix<T> x, Matrix<T> dw, std::span<T> db,
                      Store store) {
  RINGSMITH_PROFILED(matmul, Matrix<const T>(dy.t()), Matrix<const T>(x), dw, store)
  const DeviceGuard current(device);
  cuda::weight_gradients<T>(dy, x, dw, db, store);
}

// The kernels of the same name. Devices only.
template <class T>
requires kIsHalf<T>
void linear_gelu(Device device, Matrix<T> x, Matrix<T> w, std::span<const T> bias,
                 Matrix<T> argument, Matrix<T> y) {
  RINGSMITH_PROFILED(linear, Matrix<const T>(x), Matrix<const T>(w), bias, argument, y)
  const DeviceGuard current(device);
  cuda::linear_gelu<T>(x, w, bias, argument, y);
}
template <class T>
requires kIsHalf<T>
void gelu_gradient(Device device, Matrix<T> dy, Matrix<T> w, Matrix<T> argument, Matrix<T> dx) {
  RINGSMITH_PROFILED(matmul, Matrix<const T>(dy), Matrix<const T>(w), dx, Matrix<const T>(argument))
  const DeviceGuard current(device);
  cuda::gelu_gradient<T>(dy, w, argument, dx);
}

namespace cpu::fast {
void matmul(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, Store store);
LinearFn<float> linear;
// c = a b + bias, or c = (or +=) a b without a bias, for f16 and bf16 (cpu/fast/matmul_half.cpp).
template <class T>
void matmul_half(Matrix<const T> a, Matrix<const T> b, std::span<const T> bias, Matrix<T> c,
                 Store store);
void column_sum(Matrix<const float> x, std::span<float> sums, Store store);
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
