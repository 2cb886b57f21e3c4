// The fast versions behind kernels/elementwise.hpp.
#pragma once

#include "kernels/elementwise.hpp"

namespace ringsmith::kernels::cpu::fast {

template <class T>
void unary(Unary op, View<T> out, View<const T> x);
template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b);

}  // namespace ringsmith::kernels::cpu::fast
