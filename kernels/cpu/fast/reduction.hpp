// The fast versions behind kernels/reduction.hpp.
#pragma once

#include "kernels/reduction.hpp"

namespace ringsmith::kernels::cpu::fast {

template <class T>
void sum(View<T> out, View<const T> x);
template <class T>
T squared_error(std::span<const T> x, std::span<const T> y);

}  // namespace ringsmith::kernels::cpu::fast
