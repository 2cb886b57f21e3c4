// Compares values by their bits, except NaN: its sign and payload depend on the processor. An x86
// gives infinity - infinity the bits of its default NaN, a device's conversion to 16 bits 0x7FFF.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace ringsmith::test {

// `bytes`: an element of T, at any address.
template <class T>
bool same_value(const std::byte* bytes, const T& expected) {
  if (std::memcmp(bytes, &expected, sizeof(T)) == 0) return true;
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    using W = std::conditional_t<sizeof(T) == 2, float, T>;
    return std::isnan(static_cast<W>(value)) && std::isnan(static_cast<W>(expected));
  }
}

}  // namespace ringsmith::test
