// A kernel's view of a tensor: a typed pointer, sizes and strides. It owns no memory and does not
// know the device.
//
// Inputs that must be contiguous are passed as std::span. Inputs that may be strided or broadcast
// are passed as a View, with stride 0 in a broadcast dimension.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/error.hpp"

namespace ringsmith::kernels {

constexpr int kMaxDims = 8;

struct Layout {
  int dims = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::int64_t, kMaxDims> strides{};

  [[nodiscard]] std::int64_t numel() const {
    std::int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= sizes[static_cast<std::size_t>(d)];
    return n;
  }
};

template <class T>
struct View {
  T* data = nullptr;
  Layout layout;

  // NOLINTNEXTLINE(google-explicit-constructor): callers pass mutable data where const is expected
  operator View<const T>() const { return {data, layout}; }
};

}  // namespace ringsmith::kernels
