// The oracles, with the C library's functions. In Mode::fast, those with a fast version call it.
#include "kernels/elementwise.hpp"

#include "kernels/cpu/elementwise_loops.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

template <class T>
void unary(Unary op, View<T> out, View<const T> x) {
  if (mode() == Mode::fast) return fast::unary(op, out, x);
  unary_with<LibraryMath>(op, out, x);
}

template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b) {
  if (mode() == Mode::fast) return fast::binary(op, out, a, b);
  binary_with<LibraryMath>(op, out, a, b);
}

// Both modes use this version, because the compiler vectorises all of it except pow, which is rare.
template <class T>
void scalar(Scalar op, View<T> out, View<const T> x, Wide<T> s) {
  scalar_with(op, out, x, s);
}

template <class T>
void masked_fill(View<T> out, View<const T> x, View<const bool> mask, Wide<T> value) {
  map2(out, x, mask, [=](T v, bool m) { return m ? value : v; });
}

template <class T>
void masked_scale(View<T> out, View<const T> x, View<const bool> mask, Wide<T> scale) {
  map2(out, x, mask, [=](T v, bool m) { return v * (m ? scale : T(0)); });
}

RINGSMITH_FLOAT_AND_DOUBLE(unary)
RINGSMITH_FLOAT_AND_DOUBLE(binary)
RINGSMITH_FLOAT_AND_DOUBLE(scalar)
RINGSMITH_FLOAT_AND_DOUBLE(masked_fill)
RINGSMITH_FLOAT_AND_DOUBLE(masked_scale)

}  // namespace ringsmith::kernels::cpu
