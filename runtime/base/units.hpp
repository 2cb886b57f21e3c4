// Strong types for numbers that are easy to confuse.
//
// Passing a byte size where an element count was meant is the best-known bug of this field's
// teaching code. Here the two are different types, made from each other only by naming the element
// size.
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

// UsageError if an address cannot hold so much: a product that wrapped around would be a small
// buffer for many elements.
constexpr Bytes bytes_of(Elements n, std::size_t element_size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(n.value, element_size, &bytes)) throw_too_large(n.value, element_size);
  return Bytes(bytes);
}

constexpr Bytes KiB(std::size_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(std::size_t n) { return Bytes(n << 20); }

}  // namespace ringsmith
