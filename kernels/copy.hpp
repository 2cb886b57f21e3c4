// Copy with conversion between any two dtypes, and fill. Strides are arbitrary. `out` must not
// overlap `in`, unless both are the same view.
//
// round_all rounds the floats of many tensors to f16 or bf16, on devices in one launch: the weights
// of a model under autocast. Sizes must be equal; tensors must be contiguous.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/half.hpp"
#include "kernels/on_device.hpp"
#include "kernels/view.hpp"

namespace ringsmith::kernels {

// The 16-bit types are converted through float. Conversion to bool yields s != 0.
template <class D, class S>
constexpr D convert(S s) {
  if constexpr (std::is_same_v<D, S>)
    return s;
  else if constexpr (kIsHalf<S>)
    return convert<D>(static_cast<float>(s));
  else if constexpr (kIsHalf<D>)
    return D(static_cast<float>(s));
  else if constexpr (std::is_same_v<D, bool>)
    return s != S{};
  else
    return static_cast<D>(s);
}

namespace cpu {

using kernels::convert;

template <class D, class S>
void copy(View<D> out, View<const S> in);

template <class T>
void fill(View<T> out, T value);

}  // namespace cpu

// Both enqueue their work on the current device and stream (runtime/device/stream.hpp). Pointers
// must be to device memory.
namespace cuda {

template <class D, class S>
void copy(View<D> out, View<const S> in);
template <class T>
void fill(View<T> out, T value);

}  // namespace cuda

RINGSMITH_ON_DEVICE(copy)
RINGSMITH_ON_DEVICE(fill)

template <class H>
struct RoundedTensor {
  std::span<const float> from;
  std::span<H> to;
};
template <class H>
using RoundAllFn = void(std::span<const RoundedTensor<H>> tensors);
RINGSMITH_KERNEL(round_all, RoundAllFn)  // on devices only

template <class H>
void look(Operands& o, const std::span<const RoundedTensor<H>>& tensors) {
  std::int64_t n = 0;
  for (const RoundedTensor<H>& t : tensors) n += std::ssize(t.to);
  o.add<const float>(n);
  o.add<H>(n);
}

// Instantiates copy for every pair of dtypes, and fill for every dtype.
#define RINGSMITH_COPY_TO(D)                                              \
  template void copy<D, float>(View<D>, View<const float>);               \
  template void copy<D, f16>(View<D>, View<const f16>);                   \
  template void copy<D, bf16>(View<D>, View<const bf16>);                 \
  template void copy<D, double>(View<D>, View<const double>);             \
  template void copy<D, std::int32_t>(View<D>, View<const std::int32_t>); \
  template void copy<D, std::int64_t>(View<D>, View<const std::int64_t>); \
  template void copy<D, std::uint8_t>(View<D>, View<const std::uint8_t>); \
  template void copy<D, bool>(View<D>, View<const bool>);                 \
  template void fill<D>(View<D>, D);
#define RINGSMITH_COPY_AND_FILL   \
  RINGSMITH_COPY_TO(float)        \
  RINGSMITH_COPY_TO(f16)          \
  RINGSMITH_COPY_TO(bf16)         \
  RINGSMITH_COPY_TO(double)       \
  RINGSMITH_COPY_TO(std::int32_t) \
  RINGSMITH_COPY_TO(std::int64_t) \
  RINGSMITH_COPY_TO(std::uint8_t) \
  RINGSMITH_COPY_TO(bool)

}  // namespace ringsmith::kernels
