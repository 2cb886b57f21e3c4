// Strong types for quantities that are easily confused.
//
// Passing a size in bytes instead of a number of elements is a common bug in communication code.
// Here the two have different types, and converting one to the other requires the element size.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "runtime/base/error.hpp"

namespace ringsmith {

template <class Tag>
struct Quantity {
  std::size_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::size_t v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return Quantity(value + o.value); }
  constexpr Quantity operator-(Quantity o) const { return Quantity(value - o.value); }
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag>;
using Elements = Quantity<struct ElementsTag>;

// Throws UsageError on overflow: the wrapped product would make the buffer too small.
constexpr Bytes bytes_of(Elements n, std::size_t element_size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(n.value, element_size, &bytes)) throw_too_large(n.value, element_size);
  return Bytes(bytes);
}

constexpr Bytes KiB(std::size_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(std::size_t n) { return Bytes(n << 20); }

}  // namespace ringsmith
