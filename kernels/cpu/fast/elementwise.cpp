#include "kernels/cpu/fast/elementwise.hpp"

#include "kernels/cpu/elementwise_loops.hpp"
#include "kernels/cpu/fast/vector_math.hpp"
#include "kernels/cpu/library_math.hpp"

namespace ringsmith::kernels::cpu::fast {

template <class T>
void unary(Unary op, View<T> out, View<const T> x) {
  unary_with<LibraryMath>(op, out, x);
}

template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b) {
  binary_with<LibraryMath>(op, out, a, b);
}

template void unary<float>(Unary, View<float>, View<const float>);
template void unary<double>(Unary, View<double>, View<const double>);
template void binary<float>(Binary, View<float>, View<const float>, View<const float>);
template void binary<double>(Binary, View<double>, View<const double>, View<const double>);

}  // namespace ringsmith::kernels::cpu::fast
