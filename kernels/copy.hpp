// Copy with conversion between any two dtypes, and fill. Any strides; out must not overlap in
// (unless it is the same view).
#pragma once

#include <type_traits>

#include "kernels/half.hpp"
#include "kernels/on_device.hpp"
#include "kernels/view.hpp"

namespace ringsmith::kernels {

// One element: the 16-bit types go through float; anything to bool asks for "not zero".
template <class D, class S>
constexpr D convert(S s) {
  constexpr bool half_source = std::is_same_v<S, f16> || std::is_same_v<S, bf16>;
  constexpr bool half_target = std::is_same_v<D, f16> || std::is_same_v<D, bf16>;
  if constexpr (std::is_same_v<D, S>)
    return s;
  else if constexpr (half_source)
    return convert<D>(static_cast<float>(s));
  else if constexpr (half_target)
    return D(static_cast<float>(s));
  else if constexpr (std::is_same_v<D, bool>)
    return s != S{};
  else
    return static_cast<D>(s);
}

namespace cpu {

using kernels::convert;

// out and in have the same sizes.
template <class D, class S>
void copy(View<D> out, View<const S> in);

template <class T>
void fill(View<T> out, T value);

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

template <class D, class S>
void copy(View<D> out, View<const S> in);
template <class T>
void fill(View<T> out, T value);

}  // namespace cuda

RINGSMITH_ON_DEVICE(copy)
RINGSMITH_ON_DEVICE(fill)

}  // namespace ringsmith::kernels
