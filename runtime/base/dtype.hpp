// Element types: names, sizes, and dispatch from a run-time tag to a C++ type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/half.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {

enum class DType : std::uint8_t { f32, f16, bf16, f64, i32, i64, u8, boolean };

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type of the tag. A bool element is one byte, 0 or 1.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f16:
      return f(TypeTag<f16>{});
    case DType::bf16:
      return f(TypeTag<bf16>{});
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::i32:
      return f(TypeTag<std::int32_t>{});
    case DType::i64:
      return f(TypeTag<std::int64_t>{});
    case DType::u8:
      return f(TypeTag<std::uint8_t>{});
    case DType::boolean:
      return f(TypeTag<bool>{});
  }
  throw Error("corrupt dtype tag");
}

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<U, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<U, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<U, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<U, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<U, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<U, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<U, bool>)
    return DType::boolean;
  else
    static_assert(!sizeof(U*), "not an element type of ringsmith");
}

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::boolean:
      return "bool";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

// Parses "f32" etc. and nccl-tests' names (float, half, bfloat16, double, int32, int64, uint8).
// Throws UsageError naming the choices.
inline DType parse_dtype(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, 7> foreign{{{"float", DType::f32},
                                                                       {"half", DType::f16},
                                                                       {"bfloat16", DType::bf16},
                                                                       {"double", DType::f64},
                                                                       {"int32", DType::i32},
                                                                       {"int64", DType::i64},
                                                                       {"uint8", DType::u8}}};
  for (const auto& [alias, dtype] : foreign)
    if (name == alias || name == name_of(dtype)) return dtype;
  if (name == name_of(DType::boolean)) return DType::boolean;
  throw UsageError("unknown dtype '" + std::string(name) +
                   "': use f32, f16, bf16, f64, i32, i64, u8 or bool");
}

}  // namespace ringsmith
