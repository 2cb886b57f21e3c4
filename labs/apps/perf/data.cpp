#include "labs/apps/perf/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ringsmith::apps {

using comm::ReduceOp;

namespace {

// Returns the largest n such that the type represents all integers from 0 to n exactly.
double exact_integers(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 2048;
    case DType::bf16:
      return 256;
    case DType::u8:
      return 255;
    default:
      return 16777216;  // f32; more than enough for the wider types
  }
}

// Half the distance from 1 to the next value.
double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::f32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

std::uint32_t hash(const Pattern& pattern, int rank, std::size_t index) {
  auto h = static_cast<std::uint32_t>(index) * 2654435761u +
           static_cast<std::uint32_t>(rank) * 40503u + pattern.seed * 97u;
  h ^= h >> 15;
  return h * 2246822519u >> 9;
}

// The bound on the inputs' magnitude for sum, min, max and avg. Ranks with numbers of `ranks` and
// above contribute zeros, so that the sum is exact even if there are more ranks than the type has
// exact integers.
struct Bound {
  std::uint32_t magnitude;
  int ranks;
};

Bound bound_of(const Pattern& pattern, DType dtype) {
  const double room = exact_integers(dtype);
  const int ranks = static_cast<int>(std::min<double>(pattern.world, room));
  return {static_cast<std::uint32_t>(std::min(256.0, room / ranks)), ranks};
}

template <class T>
T narrow(double value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <class T>
double widen(T value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return static_cast<float>(value);
  else
    return static_cast<double>(value);
}

}  // namespace

double input_value(const Pattern& pattern, DType dtype, int rank, std::size_t index) {
  const std::uint32_t h = hash(pattern, rank, index);
  if (pattern.op == ReduceOp::prod) {
    if (rank >= 6) return 1;  // 2^6 still fits u8
    if (!is_floating(dtype)) return 1 + (h & 1u);
    constexpr double kFactors[] = {0.5, 1, 2, -1};
    return kFactors[h & 3u];
  }
  const Bound bound = bound_of(pattern, dtype);
  if (rank >= bound.ranks) return 0;
  if (dtype == DType::u8) return h % (bound.magnitude + 1);
  return static_cast<double>(h % (2 * bound.magnitude + 1)) - bound.magnitude;
}

double reduced_value(const Pattern& pattern, DType dtype, std::size_t index) {
  double value = input_value(pattern, dtype, 0, index);
  for (int rank = 1; rank < pattern.world; ++rank) {
    const double next = input_value(pattern, dtype, rank, index);
    switch (pattern.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        value += next;
        break;
      case ReduceOp::prod:
        value *= next;
        break;
      case ReduceOp::min:
        value = std::min(value, next);
        break;
      case ReduceOp::max:
        value = std::max(value, next);
        break;
    }
  }
  return pattern.op == ReduceOp::avg ? value / pattern.world : value;
}

double tolerance(const Pattern& pattern, DType dtype) {
  const int world = pattern.world;
  if (pattern.op != ReduceOp::avg || (world & (world - 1)) == 0) return 0;
  // 1/world and each product are rounded once, and each of the world - 1 additions adds one
  // rounding error. No partial sum exceeds the largest input.
  return (world + 2) * unit_roundoff(dtype) * bound_of(pattern, dtype).magnitude;
}

void fill(comm::Buffer data, const Pattern& pattern, int rank) {
  visit_dtype(data.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = reinterpret_cast<T*>(data.data());
    for (std::size_t i = 0; i < data.count().value; ++i)
      out[i] = narrow<T>(input_value(pattern, data.dtype(), rank, i));
  });
}

void fill_zero(comm::Buffer data) {
  if (data.size().value > 0) std::memset(data.data(), 0, data.size().value);
}

bool element_is(comm::ConstBuffer data, std::size_t i, double value, double tolerance) {
  return visit_dtype(data.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T& got = reinterpret_cast<const T*>(data.data())[i];
    if (tolerance > 0) return std::abs(widen(got) - value) <= tolerance;  // false for NaN
    // Zero may have either sign, e.g. (-1) * 0 is -0 and 1 + (-1) is +0.
    if (value == 0 && widen(got) == 0) return true;
    const T want = narrow<T>(value);
    const auto* a = reinterpret_cast<const std::byte*>(&got);
    return std::equal(a, a + sizeof(T), reinterpret_cast<const std::byte*>(&want));
  });
}

}  // namespace ringsmith::apps
