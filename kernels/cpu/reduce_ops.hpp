// The pairwise operations of kernels/reduce.hpp, shared by the oracle and the fast version.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cpu {

struct Sum {};
struct Prod {};
struct Min {};
struct Max {};

// The type in which one pairwise operation is computed: float for the 16-bit types.
template <class T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<f16> {
  using type = float;
};
template <>
struct ComputeType<bf16> {
  using type = float;
};

template <class C>
bool is_nan(C x) {
  if constexpr (std::is_integral_v<C>)
    return false;
  else
    return std::isnan(x);
}

template <class Op, class C>
C combine_computed(C a, C b) {
  if constexpr (std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>) {
    if constexpr (std::is_integral_v<C>) {
      // U is at least as wide as unsigned int, because a smaller type would be promoted to (signed)
      // int.
      using U = std::common_type_t<std::make_unsigned_t<C>, unsigned>;
      const U x = static_cast<U>(a), y = static_cast<U>(b);
      return static_cast<C>(std::is_same_v<Op, Sum> ? x + y : x * y);
    } else {
      return std::is_same_v<Op, Sum> ? a + b : a * b;
    }
  } else if constexpr (std::is_same_v<Op, Min>) {
    return (a < b || is_nan(a)) ? a : b;
  } else {
    return (a > b || is_nan(a)) ? a : b;
  }
}

template <class Op, class T>
T combine(T a, T b) {
  using C = typename ComputeType<T>::type;
  return static_cast<T>(combine_computed<Op, C>(static_cast<C>(a), static_cast<C>(b)));
}

template <class T>
T scaled(T x, double scale) {
  using C = typename ComputeType<T>::type;
  return static_cast<T>(static_cast<C>(x) * static_cast<C>(scale));
}

template <class F>
void visit_reduction(DType dtype, Reduction op, F&& f) {
  visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      throw UsageError("bool values cannot be reduced: use u8 with min (and) or max (or)");
    } else {
      switch (op) {
        case Reduction::sum:
          return f(TypeTag<T>{}, TypeTag<Sum>{});
        case Reduction::prod:
          return f(TypeTag<T>{}, TypeTag<Prod>{});
        case Reduction::min:
          return f(TypeTag<T>{}, TypeTag<Min>{});
        case Reduction::max:
          return f(TypeTag<T>{}, TypeTag<Max>{});
      }
    }
  });
}

}  // namespace ringsmith::kernels::cpu
