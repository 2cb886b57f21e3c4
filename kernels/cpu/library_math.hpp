// The element-wise functions by the C library, as PyTorch writes them: the oracle's mathematics.
//
// In an unnamed namespace on purpose: each file that includes this compiles its own copy with its
// own flags.
#pragma once

#include <cmath>

namespace ringsmith::kernels::cpu {
namespace {

struct LibraryMath {
  template <class T>
  static T exp(T x) {
    return std::exp(x);
  }
  template <class T>
  static T log(T x) {
    return std::log(x);
  }
  template <class T>
  static T tanh(T x) {
    return std::tanh(x);
  }
  template <class T>
  static T sigmoid(T x) {
    return 1 / (1 + std::exp(-x));
  }
  template <class T>
  static T gelu_erf(T x) {
    return x * T(0.5) * (1 + std::erf(x * T(M_SQRT1_2)));
  }
  template <class T>
  static T gelu_erf_gradient(T x) {
    const T cdf = T(0.5) * (1 + std::erf(x * T(M_SQRT1_2)));
    const T pdf = std::exp(T(-0.5) * x * x) * T(M_2_SQRTPI * M_SQRT1_2 * 0.5);
    return cdf + x * pdf;
  }
  static constexpr double kBeta = M_SQRT2 * M_2_SQRTPI * 0.5;  // sqrt(2/pi)
  static constexpr double kKappa = 0.044715;
  template <class T>
  static T gelu_tanh(T x) {
    const T inner = T(kBeta) * (x + T(kKappa) * (x * x * x));
    return T(0.5) * x * (1 + std::tanh(inner));
  }
  template <class T>
  static T gelu_tanh_gradient(T x) {
    const T t = std::tanh(T(kBeta) * (x + T(kKappa) * (x * x * x)));
    const T inner_derivative = T(kBeta) * (1 + 3 * T(kKappa) * x * x);
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * inner_derivative;
  }
};

}  // namespace
}  // namespace ringsmith::kernels::cpu
