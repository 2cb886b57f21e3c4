// The fast versions behind kernels/reduction.hpp.
#pragma once

#include "kernels/reduction.hpp"

namespace ringsmith::kernels::cpu::fast {

template <class T>
void sum(View<T> out, View<const T> x);
}  // namespace ringsmith::kernels::cpu::fast
