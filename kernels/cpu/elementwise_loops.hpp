// The loops of kernels/elementwise.hpp, written once for two sets of mathematical functions:
// <cmath> in the oracle (kernels/cpu/elementwise.cpp), vectorised polynomials in the fast version.
//
// Math is a struct with static templates exp, log, tanh, sigmoid, gelu_erf, gelu_tanh and the two
// gelu gradients. Each including file has its own in an unnamed namespace, so the code instantiated
// here is compiled separately, with that file's flags.
#pragma once

#include <cmath>

#include "kernels/cpu/loops.hpp"
#include "kernels/elementwise.hpp"

// No iteration reads data written by another, since out is either the same view as an operand or
// disjoint from it.
#if defined(__clang__)
#define RINGSMITH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define RINGSMITH_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Forces long lambdas to be inlined, because a loop with a call is not vectorised.
#define RINGSMITH_INLINED __attribute__((always_inline))

namespace ringsmith::kernels::cpu {

template <class D, class A, class Op>
void map(View<D> out, View<const A> a, const Op& op, std::int64_t grain = kParallelGrain) {
  const Nest<2> nest = nest_of<2>({&out.layout, &a.layout});
  const std::int64_t so = nest.inner(0), sa = nest.inner(1);
  for_each_run<2>(
      nest,
      [&](const Offsets<2>& at, std::int64_t n) {
        D* const o = out.data + at[0];
        const A* const x = a.data + at[1];
        if (so == 1 && sa == 1) {
          RINGSMITH_INDEPENDENT
          for (std::int64_t i = 0; i < n; ++i) o[i] = op(x[i]);
        } else {
          for (std::int64_t i = 0; i < n; ++i) o[i * so] = op(x[i * sa]);
        }
      },
      grain);
}

template <class D, class A, class B, class Op>
void map2(View<D> out, View<const A> a, View<const B> b, const Op& op,
          std::int64_t grain = kParallelGrain) {
  const Nest<3> nest = nest_of<3>({&out.layout, &a.layout, &b.layout});
  const std::int64_t so = nest.inner(0), sa = nest.inner(1), sb = nest.inner(2);
  for_each_run<3>(
      nest,
      [&](const Offsets<3>& at, std::int64_t n) {
        D* const o = out.data + at[0];
        const A* const x = a.data + at[1];
        const B* const y = b.data + at[2];
        if (so == 1 && sa == 1 && sb == 1) {
          RINGSMITH_INDEPENDENT
          for (std::int64_t i = 0; i < n; ++i) o[i] = op(x[i], y[i]);
        } else if (so == 1 && sa == 1 && sb == 0) {
          const B y0 = *y;
          RINGSMITH_INDEPENDENT
          for (std::int64_t i = 0; i < n; ++i) o[i] = op(x[i], y0);
        } else if (so == 1 && sa == 0 && sb == 1) {
          const A x0 = *x;
          RINGSMITH_INDEPENDENT
          for (std::int64_t i = 0; i < n; ++i) o[i] = op(x0, y[i]);
        } else {
          for (std::int64_t i = 0; i < n; ++i) o[i * so] = op(x[i * sa], y[i * sb]);
        }
      },
      grain);
}

// Transcendental functions cost about eight plain operations each, so threads pay off earlier.
constexpr std::int64_t kMathGrain = kParallelGrain / 8;

template <class Math, class T>
void unary_with(Unary op, View<T> out, View<const T> x) {
  switch (op) {
    case Unary::neg:
      return map(out, x, [](T v) { return -v; });
    case Unary::exp:
      return map(
          out, x, [](T v) RINGSMITH_INLINED { return Math::exp(v); }, kMathGrain);
    case Unary::log:
      return map(
          out, x, [](T v) RINGSMITH_INLINED { return Math::log(v); }, kMathGrain);
    case Unary::sqrt:
      return map(out, x, [](T v) { return std::sqrt(v); });
    case Unary::tanh:
      return map(
          out, x, [](T v) RINGSMITH_INLINED { return Math::tanh(v); }, kMathGrain);
    case Unary::sigmoid:
      return map(
          out, x, [](T v) RINGSMITH_INLINED { return Math::sigmoid(v); }, kMathGrain);
    case Unary::relu:
      return map(out, x, [](T v) { return v <= 0 ? T(0) : v; });  // NaN stays NaN
    case Unary::gelu_erf:
      return map(
          out, x, [](T v) RINGSMITH_INLINED { return Math::gelu_erf(v); }, kMathGrain);
    case Unary::gelu_tanh:
      return map(
          out, x, [](T v) RINGSMITH_INLINED { return Math::gelu_tanh(v); }, kMathGrain);
  }
}

template <class Math, class T>
void binary_with(Binary op, View<T> out, View<const T> a, View<const T> b) {
  switch (op) {
    case Binary::add:
      return map2(out, a, b, [](T x, T y) { return x + y; });
    case Binary::sub:
      return map2(out, a, b, [](T x, T y) { return x - y; });
    case Binary::mul:
      return map2(out, a, b, [](T x, T y) { return x * y; });
    case Binary::div:
      return map2(out, a, b, [](T x, T y) { return x / y; });
    case Binary::tanh_backward:
      return map2(out, a, b, [](T g, T y) { return g * (1 - y * y); });
    case Binary::sigmoid_backward:
      return map2(out, a, b, [](T g, T y) { return g * (1 - y) * y; });
    case Binary::sqrt_backward:
      return map2(out, a, b, [](T g, T y) { return g / (2 * y); });
    case Binary::relu_backward:
      return map2(out, a, b, [](T g, T y) { return y <= 0 ? T(0) : g; });
    case Binary::gelu_erf_backward:
      return map2(
          out, a, b, [](T g, T x) RINGSMITH_INLINED { return g * Math::gelu_erf_gradient(x); },
          kMathGrain);
    case Binary::gelu_tanh_backward:
      return map2(
          out, a, b, [](T g, T x) RINGSMITH_INLINED { return g * Math::gelu_tanh_gradient(x); },
          kMathGrain);
  }
}

// PyTorch computes these exponents without pow, so the oracle must, too.
template <class T>
void power(View<T> out, View<const T> x, T s, T factor) {
  if (s == 0) return map(out, x, [=](T) { return factor; });
  if (s == 1) return map(out, x, [=](T v) { return factor * v; });
  if (s == 2) return map(out, x, [=](T v) { return factor * (v * v); });
  if (s == 3) return map(out, x, [=](T v) { return factor * (v * v * v); });
  if (s == T(0.5)) return map(out, x, [=](T v) { return factor * std::sqrt(v); });
  if (s == T(-0.5)) return map(out, x, [=](T v) { return factor * (1 / std::sqrt(v)); });
  if (s == -1) return map(out, x, [=](T v) { return factor * (1 / v); });
  if (s == -2) return map(out, x, [=](T v) { return factor * (1 / (v * v)); });
  map(
      out, x, [=](T v) { return factor * std::pow(v, s); }, kMathGrain);
}

template <class T>
void scalar_with(Scalar op, View<T> out, View<const T> x, T s) {
  switch (op) {
    case Scalar::add:
      return map(out, x, [=](T v) { return v + s; });
    case Scalar::mul:
      return map(out, x, [=](T v) { return v * s; });
    case Scalar::div:
      return map(out, x, [=](T v) { return v / s; });
    case Scalar::pow:
      return power(out, x, s, T(1));
    case Scalar::pow_backward:
      return power(out, x, s - 1, s);
  }
}

// The oracle's mathematics: PyTorch's formulas with the functions of the C library.
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
