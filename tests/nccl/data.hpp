// The client's inputs and expected results, computed one element at a time.
//
// Integers are random bits: sums and products wrap. Floats are chosen so that the result is exact
// in any order (small integers to add, powers of two to multiply), except for the average, where
// each contribution and each sum may be rounded. As in nccl-tests, ncclNumOps stands for the sum of
// multiplied contributions, whose op is created for each call.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "labs/nccl/nccl.h"

namespace client {

template <class F>
auto with_type(ncclDataType_t type, F&& f) {
  switch (type) {
    case ncclInt8:
      return f(std::int8_t{});
    case ncclUint8:
      return f(std::uint8_t{});
    case ncclInt32:
      return f(std::int32_t{});
    case ncclUint32:
      return f(std::uint32_t{});
    case ncclInt64:
      return f(std::int64_t{});
    case ncclUint64:
      return f(std::uint64_t{});
    case ncclFloat16:
      return f(__half{});
    case ncclFloat32:
      return f(float{});
    case ncclBfloat16:
      return f(__nv_bfloat16{});
    default:
      return f(double{});
  }
}

inline std::size_t size_of(ncclDataType_t type) {
  return with_type(type, [](auto zero) { return sizeof zero; });
}

struct TypeName {
  ncclDataType_t type;
  const char* name;
};
constexpr TypeName kTypes[] = {{ncclInt8, "int8"},      {ncclUint8, "uint8"},
                               {ncclInt32, "int32"},    {ncclUint32, "uint32"},
                               {ncclInt64, "int64"},    {ncclUint64, "uint64"},
                               {ncclFloat16, "half"},   {ncclFloat32, "float"},
                               {ncclFloat64, "double"}, {ncclBfloat16, "bfloat16"}};
struct OpName {
  ncclRedOp_t op;
  const char* name;
};
constexpr OpName kOps[] = {{ncclSum, "sum"}, {ncclProd, "prod"}, {ncclMax, "max"},
                           {ncclMin, "min"}, {ncclAvg, "avg"},   {ncclNumOps, "premulsum"}};

// splitmix64 of an element's coordinates.
inline std::uint64_t bits_of(std::uint64_t seed, int rank, std::uint64_t index) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15U +
                    static_cast<std::uint64_t>(rank + 1) * 0xd1342543U +
                    index * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

template <class T>
T to_element(double x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}
template <class T>
double to_double(T x) {
  if constexpr (std::is_same_v<T, __half>)
    return static_cast<double>(__half2float(x));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return static_cast<double>(__bfloat162float(x));
  else
    return static_cast<double>(x);
}

// The factor of a rank's contributions to a premulsum. Negative factors test that unsigned types
// wrap.
template <class T>
T factor_of(int rank) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(rank % 2 == 0 ? 3 + rank : -5 * rank);
  else
    return to_element<T>(rank % 3 == 0 ? 2.0 : rank % 3 == 1 ? -1.0 : 0.5);
}

// A rank's input to a reduction by op, or to a copy (op: ncclSum).
template <class T>
T input_of(ncclRedOp_t op, std::uint64_t seed, int rank, std::uint64_t index) {
  const std::uint64_t bits = bits_of(seed, rank, index);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else if (op == ncclProd) {
    const double value = std::ldexp(1.0, static_cast<int>(bits % 3) - 1);
    return to_element<T>((bits >> 8) % 2 == 0 ? value : -value);
  } else if (op == ncclAvg) {
    return to_element<T>(static_cast<double>(1 + bits % 8));
  } else {
    return to_element<T>(static_cast<double>(bits % 17) - 8.0);
  }
}

template <class T>
T reduced(ncclRedOp_t op, std::uint64_t seed, int world, std::uint64_t index) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t sum = 0, product = 1;
    T least = input_of<T>(op, seed, 0, index), most = least;
    for (int r = 0; r < world; ++r) {
      const T x = input_of<T>(op, seed, r, index);
      sum += static_cast<std::uint64_t>(x) *
             (op == ncclNumOps ? static_cast<std::uint64_t>(factor_of<T>(r)) : 1);
      product *= static_cast<std::uint64_t>(x);
      least = x < least ? x : least;
      most = x > most ? x : most;
    }
    if (op == ncclAvg) return static_cast<T>(static_cast<T>(sum) / static_cast<T>(world));
    return op == ncclMin   ? least
           : op == ncclMax ? most
                           : static_cast<T>(op == ncclProd ? product : sum);
  } else {
    double sum = 0, product = 1, least = INFINITY, most = -INFINITY;
    for (int r = 0; r < world; ++r) {
      const double x = to_double(input_of<T>(op, seed, r, index));
      sum += x * (op == ncclNumOps ? to_double(factor_of<T>(r)) : 1);
      product *= x;
      least = std::fmin(least, x);
      most = std::fmax(most, x);
    }
    return to_element<T>(op == ncclAvg    ? sum / world
                         : op == ncclMin  ? least
                         : op == ncclMax  ? most
                         : op == ncclProd ? product
                                          : sum);
  }
}

// The permitted error in units in the last place.
template <class T>
unsigned tolerance_of(ncclRedOp_t op, int world) {
  const bool exact = std::is_integral_v<T> || op != ncclAvg || (world & (world - 1)) == 0;
  return exact ? 0U : static_cast<unsigned>(world) + 2U;
}

}  // namespace client
