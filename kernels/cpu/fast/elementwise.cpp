#include "kernels/elementwise.hpp"

#include "kernels/cpu/elementwise_loops.hpp"
#include "kernels/cpu/fast/vecmath.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

// A call in the loop would prevent vectorisation.
#define RINGSMITH_INLINE [[gnu::always_inline]]

struct VectorMath : LibraryMath {
  using LibraryMath::exp;
  using LibraryMath::gelu_erf;
  using LibraryMath::gelu_erf_gradient;
  using LibraryMath::gelu_tanh;
  using LibraryMath::gelu_tanh_gradient;
  using LibraryMath::log;
  using LibraryMath::sigmoid;
  using LibraryMath::tanh;
  RINGSMITH_INLINE static float exp(float x) { return vec::exp(x); }
  RINGSMITH_INLINE static float log(float x) { return vec::log(x); }
  RINGSMITH_INLINE static float tanh(float x) { return vec::tanh(x); }
  RINGSMITH_INLINE static float sigmoid(float x) { return vec::sigmoid(x); }
  RINGSMITH_INLINE static float gelu_erf(float x) { return vec::gelu_erf(x); }
  RINGSMITH_INLINE static float gelu_erf_gradient(float x) { return vec::gelu_erf_derivative(x); }
  RINGSMITH_INLINE static float gelu_tanh(float x) { return vec::gelu_tanh(x); }
  RINGSMITH_INLINE static float gelu_tanh_gradient(float x) { return vec::gelu_tanh_derivative(x); }
};

}  // namespace

template <class T>
void unary(Unary op, View<T> out, View<const T> x) {
  unary_with<VectorMath>(op, out, x);
}

template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b) {
  binary_with<VectorMath>(op, out, a, b);
}

RINGSMITH_FLOAT_AND_DOUBLE(unary)
RINGSMITH_FLOAT_AND_DOUBLE(binary)

}  // namespace ringsmith::kernels::cpu::fast
