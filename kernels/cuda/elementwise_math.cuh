// The functions of kernels/elementwise.hpp with the formulas of the CPU's oracle.
#pragma once

#include <cuda_runtime.h>

#include "kernels/elementwise.hpp"

namespace ringsmith::kernels::cuda {

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float erf_of(float x) { return erff(x); }
__device__ inline double erf_of(double x) { return erf(x); }
__device__ inline float pow_of(float x, float y) { return powf(x, y); }
__device__ inline double pow_of(double x, double y) { return pow(x, y); }

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kInvSqrtTwoPi = 0.39894228040143267794;
constexpr double kGeluCubic = 0.044715;

template <Unary op, class T>
__device__ T apply_unary(T x) {
  if constexpr (op == Unary::neg) return -x;
  if constexpr (op == Unary::exp) return exp_of(x);
  if constexpr (op == Unary::log) return log_of(x);
  if constexpr (op == Unary::sqrt) return sqrt_of(x);
  if constexpr (op == Unary::tanh) return tanh_of(x);
  if constexpr (op == Unary::sigmoid) return 1 / (1 + exp_of(-x));
  if constexpr (op == Unary::relu) return x <= 0 ? T(0) : x;  // NaN stays NaN
  if constexpr (op == Unary::gelu_erf) return x * T(0.5) * (1 + erf_of(x * T(kSqrtHalf)));
  if constexpr (op == Unary::gelu_tanh) {
    const T inner = T(kSqrtTwoOverPi) * (x + T(kGeluCubic) * (x * x * x));
    return T(0.5) * x * (1 + tanh_of(inner));
  }
}

template <class T>
__device__ T gelu_erf_slope(T x) {
  const T cdf = T(0.5) * (1 + erf_of(x * T(kSqrtHalf)));
  return cdf + x * (exp_of(T(-0.5) * x * x) * T(kInvSqrtTwoPi));
}

template <class T>
__device__ T gelu_tanh_slope(T x) {
  const T t = tanh_of(T(kSqrtTwoOverPi) * (x + T(kGeluCubic) * (x * x * x)));
  const T inner_slope = T(kSqrtTwoOverPi) * (1 + 3 * T(kGeluCubic) * x * x);
  return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * inner_slope;
}

template <Binary op, class T>
__device__ T apply_binary(T a, T b) {
  if constexpr (op == Binary::add) return a + b;
  if constexpr (op == Binary::sub) return a - b;
  if constexpr (op == Binary::mul) return a * b;
  if constexpr (op == Binary::div) return a / b;
  if constexpr (op == Binary::tanh_backward) return a * (1 - b * b);
  if constexpr (op == Binary::sigmoid_backward) return a * (1 - b) * b;
  if constexpr (op == Binary::sqrt_backward) return a / (2 * b);
  if constexpr (op == Binary::relu_backward) return b <= 0 ? T(0) : a;
  if constexpr (op == Binary::gelu_erf_backward) return a * gelu_erf_slope(b);
  if constexpr (op == Binary::gelu_tanh_backward) return a * gelu_tanh_slope(b);
}

// As in the oracle, the exponents listed here do not use pow.
template <class T>
struct Power {
  T exponent, factor;
  __device__ T operator()(T x) const {
    if (exponent == 0) return factor;
    if (exponent == 1) return factor * x;
    if (exponent == 2) return factor * (x * x);
    if (exponent == 3) return factor * (x * x * x);
    if (exponent == T(0.5)) return factor * sqrt_of(x);
    if (exponent == T(-0.5)) return factor * (1 / sqrt_of(x));
    if (exponent == -1) return factor * (1 / x);
    if (exponent == -2) return factor * (1 / (x * x));
    return factor * pow_of(x, exponent);
  }
};

}  // namespace ringsmith::kernels::cuda
