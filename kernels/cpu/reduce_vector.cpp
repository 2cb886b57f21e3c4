// The fast version of reduce(): one pass over memory, with the running result in registers.
//
// Each step combines kUnroll vectors of all sources into accumulators and stores the accumulators
// to every output. Therefore an output may be a source, and each byte of an array is read or
// written once. The vector types are the compiler's (vector_size), not specific to a processor.
// The 16-bit types are widened to float when loaded and rounded to 16 bits after every operation.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/half_vector.hpp"
#include "kernels/cpu/reduce_ops.hpp"
#include "kernels/reduce.hpp"

namespace ringsmith::kernels {

void check_reduce(DType dtype, std::span<const ReduceSource> sources, double scale) {
  if (sources.empty() || sources.size() > kMaxReduceSources)
    throw UsageError("a reduction takes 1 to 64 sources, got " + std::to_string(sources.size()));
  if (is_floating(dtype) || scale == 1.0) return;
  for (const ReduceSource& source : sources)
    if (source.scaled)
      throw UsageError("integers cannot be averaged: " + std::string(name_of(dtype)));
}

namespace cpu {

namespace {

constexpr std::size_t kUnroll = 4;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};

template <class Op, class V>
V combine_vectors(const V& a, const V& b) {
  if constexpr (std::is_same_v<Op, Sum>)
    return a + b;
  else if constexpr (std::is_same_v<Op, Prod>)
    return a * b;
  else if constexpr (std::is_same_v<Op, Min>)
    return ((a < b) | nan_in(a)) ? a : b;
  else
    return ((a > b) | nan_in(a)) ? a : b;
}

template <class T, class Op>
struct Lanes {
  // Integers add and multiply as unsigned, so that overflow wraps, but compare in their own type.
  static constexpr bool kWraps =
      std::is_integral_v<T> && (std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>);
  using Element =
      typename std::conditional_t<kWraps, std::make_unsigned<T>, std::type_identity<T>>::type;
  using V = typename VectorOf<Element>::type;
  static constexpr std::size_t kBytes = kVectorBytes;  // in memory
  static V load(const std::byte* data) {
    V v;
    std::memcpy(&v, data, sizeof v);
    return v;
  }
  static void store(std::byte* data, const V& v) { std::memcpy(data, &v, sizeof v); }
  static V scaled(const V& v, double scale) { return v * static_cast<Element>(scale); }
  static V combine(const V& a, const V& b) { return combine_vectors<Op>(a, b); }
};

template <class T, class Op>
struct HalfLanes {
  using V = Floats;
  static constexpr std::size_t kBytes = kVectorBytes / 2;
  static V load(const std::byte* data) { return HalfVector<T>::widen(load_bytes<Halves>(data)); }
  static void store(std::byte* data, const V& v) {  // v is already rounded
    const Halves h = HalfVector<T>::narrow_exact(v);
    std::memcpy(data, &h, sizeof h);
  }
  static V scaled(const V& v, double scale) {
    return HalfVector<T>::round(v * static_cast<float>(scale));
  }
  static V combine(const V& a, const V& b) {
    return HalfVector<T>::round(combine_vectors<Op>(a, b));
  }
};
template <class Op>
struct Lanes<bf16, Op> : HalfLanes<bf16, Op> {};
template <class Op>
struct Lanes<f16, Op> : HalfLanes<f16, Op> {};

template <class T, class Op>
T reduce_one(std::span<const ReduceSource> sources, std::size_t at, double scale) {
  T result{};
  for (std::size_t s = 0; s < sources.size(); ++s) {
    T x;
    std::memcpy(&x, sources[s].data + at, sizeof(T));
    if (sources[s].scaled) x = scaled(x, scale);
    result = s == 0 ? x : combine<Op>(result, x);
  }
  return result;
}

template <class T, class Op>
void reduce_vectors(std::span<const ReduceSource> sources, std::span<std::byte* const> outputs,
                    std::size_t count, double scale) {
  using L = Lanes<T, Op>;
  constexpr std::size_t kStep = kUnroll * L::kBytes;
  const std::size_t bytes = count * sizeof(T);
  std::size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    const auto value = [&](const ReduceSource& source, std::size_t k) {
      typename L::V v = L::load(source.data + at + k * L::kBytes);
      if constexpr (!std::is_integral_v<T>)
        if (source.scaled) v = L::scaled(v, scale);
      return v;
    };
    std::array<typename L::V, kUnroll> acc;
    for (std::size_t k = 0; k < kUnroll; ++k) acc[k] = value(sources[0], k);
    for (std::size_t s = 1; s < sources.size(); ++s)
      for (std::size_t k = 0; k < kUnroll; ++k) acc[k] = L::combine(acc[k], value(sources[s], k));
    for (std::byte* const output : outputs)
      for (std::size_t k = 0; k < kUnroll; ++k) L::store(output + at + k * L::kBytes, acc[k]);
  }
  for (; at < bytes; at += sizeof(T)) {
    const T result = reduce_one<T, Op>(sources, at, scale);
    for (std::byte* const output : outputs) std::memcpy(output + at, &result, sizeof(T));
  }
}

void copy_bytes(const std::byte* source, std::span<std::byte* const> outputs, std::size_t bytes) {
  // Copies in blocks, so that the source is read from memory once even with several outputs.
  const std::size_t step = outputs.size() == 1 ? bytes : std::size_t{16} << 10;
  for (std::size_t at = 0; at < bytes; at += step)
    for (std::byte* output : outputs)
      if (output != source) std::memcpy(output + at, source + at, std::min(step, bytes - at));
}

}  // namespace

void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> outputs, Elements count, double scale) {
  check_reduce(dtype, sources, scale);
  if (count.value == 0) return;
  if (sources.size() == 1 && !sources[0].scaled)
    return copy_bytes(sources[0].data, outputs, bytes_of(count, size_of(dtype)).value);
  visit_reduction(dtype, op, [&]<class T, class Op>(TypeTag<T>, TypeTag<Op>) {
    reduce_vectors<T, Op>(sources, outputs, count.value, scale);
  });
}

}  // namespace cpu
}  // namespace ringsmith::kernels
