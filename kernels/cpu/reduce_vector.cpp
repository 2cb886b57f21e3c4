// The fast version: blocks that stay in L1, inner loops that the compiler vectorises.
//
// The general case keeps a block of the result in a local array, adds one source after the other,
// and stores it to every destination. Two sources into one or two destinations (every step of a
// ring; all of a direct all-reduce on two ranks) run in registers, one pass over memory.
#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/cpu/reduce_ops.hpp"
#include "kernels/reduce.hpp"

// The iterations do not depend on each other: a destination is a source exactly, or elsewhere.
#if defined(__clang__)
#define RINGSMITH_INDEPENDENT_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define RINGSMITH_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#endif

namespace ringsmith::kernels::cpu {

namespace {

constexpr std::size_t kBlock = 4096;  // bytes of result kept in L1 while the sources stream by

// Memory may be misaligned for its type; the compiler turns these into vector loads and stores.
template <class T>
T get(const std::byte* p, std::size_t i) {
  T value;
  std::memcpy(&value, p + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(std::byte* p, std::size_t i, T value) {
  std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

// f16 in hardware when there is F16C; bf16 and the rest vectorise from their definitions.
#if defined(__F16C__)
template <class Op>
void combine_f16(f16* acc, const std::byte* x, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const auto* px = reinterpret_cast<const __m128i*>(x + i * sizeof(f16));
    auto* pa = reinterpret_cast<__m128i*>(acc + i);
    const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(pa)), b = _mm256_cvtph_ps(_mm_loadu_si128(px));
    __m256 r;
    if constexpr (std::is_same_v<Op, Sum>)
      r = _mm256_add_ps(a, b);
    else if constexpr (std::is_same_v<Op, Prod>)
      r = _mm256_mul_ps(a, b);
    else {
      constexpr int order = std::is_same_v<Op, Min> ? _CMP_LT_OQ : _CMP_GT_OQ;
      const __m256 keep_a =
          _mm256_or_ps(_mm256_cmp_ps(a, b, order), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
      r = _mm256_blendv_ps(b, a, keep_a);
    }
    _mm_storeu_si128(pa, _mm256_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  for (; i < n; ++i) acc[i] = combine<Op>(acc[i], get<f16>(x, i));
}
#endif

template <class T, class Op>
void combine_block(T* __restrict acc, const std::byte* x, std::size_t n) {
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, f16>) return combine_f16<Op>(acc, x, n);
#endif
  RINGSMITH_INDEPENDENT_LOOP
  for (std::size_t i = 0; i < n; ++i) acc[i] = combine<Op>(acc[i], get<T>(x, i));
}

template <class T>
void load_block(T* __restrict acc, const ReduceSource& source, std::size_t at, std::size_t n,
                double scale) {
  std::memcpy(acc, source.data + at, n * sizeof(T));
  if (source.scaled)
    for (std::size_t i = 0; i < n; ++i) acc[i] = scaled(acc[i], scale);
}

template <class T, class Op>
void reduce_blocks(std::span<const ReduceSource> sources, std::span<std::byte* const> out,
                   std::size_t count, double scale) {
  constexpr std::size_t kStep = kBlock / sizeof(T);
  alignas(64) T acc[kStep];
  alignas(64) T x[kStep];
  for (std::size_t i = 0; i < count; i += kStep) {
    const std::size_t n = std::min(kStep, count - i), at = i * sizeof(T);
    load_block(acc, sources[0], at, n, scale);
    for (const ReduceSource& source : sources.subspan(1)) {
      if (source.scaled) {
        load_block(x, source, at, n, scale);
        combine_block<T, Op>(acc, reinterpret_cast<const std::byte*>(x), n);
      } else {
        combine_block<T, Op>(acc, source.data + at, n);
      }
    }
    for (std::byte* d : out) std::memcpy(d + at, acc, n * sizeof(T));
  }
}

// Two sources in registers. The destinations may be the sources themselves, element for element:
// both are read before either is written.
template <class T, class Op, bool kScaled>
void reduce_pair(const ReduceSource& first, const ReduceSource& second,
                 std::span<std::byte* const> out, std::size_t count, double scale) {
  const std::byte *const a = first.data, *const b = second.data;
  const auto value = [=](std::size_t i) {
    if constexpr (kScaled)
      return combine<Op>(scaled(get<T>(a, i), scale), scaled(get<T>(b, i), scale));
    else
      return combine<Op>(get<T>(a, i), get<T>(b, i));
  };
  std::byte* const d = out[0];
  if (out.size() == 1) {
    RINGSMITH_INDEPENDENT_LOOP
    for (std::size_t i = 0; i < count; ++i) put<T>(d, i, value(i));
    return;
  }
  std::byte* const e = out[1];
  RINGSMITH_INDEPENDENT_LOOP
  for (std::size_t i = 0; i < count; ++i) {
    const T r = value(i);
    put<T>(d, i, r);
    put<T>(e, i, r);
  }
}

void copy_bytes(const std::byte* source, std::span<std::byte* const> out, std::size_t bytes) {
  // Block by block, so that with several destinations the source is read from memory once.
  const std::size_t step = out.size() == 1 ? bytes : 4 * kBlock;
  for (std::size_t at = 0; at < bytes; at += step)
    for (std::byte* d : out)
      if (d != source) std::memcpy(d + at, source + at, std::min(step, bytes - at));
}

template <class T, class Op>
void reduce_fast(std::span<const ReduceSource> sources, std::span<std::byte* const> out,
                 std::size_t count, double scale) {
  constexpr bool kInRegisters = std::is_same_v<T, float> || std::is_same_v<T, double>;
  if constexpr (kInRegisters) {
    if (sources.size() == 2 && sources[0].scaled == sources[1].scaled &&
        (out.size() == 1 || out.size() == 2))
      return sources[0].scaled
                 ? reduce_pair<T, Op, true>(sources[0], sources[1], out, count, scale)
                 : reduce_pair<T, Op, false>(sources[0], sources[1], out, count, scale);
  }
  reduce_blocks<T, Op>(sources, out, count, scale);
}

}  // namespace

void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> destinations, Elements count, double scale) {
  check_reduce(dtype, sources, scale);
  if (count.value == 0) return;
  if (sources.size() == 1 && !sources[0].scaled)
    return copy_bytes(sources[0].data, destinations, bytes_of(count, size_of(dtype)).value);
  visit_reduction(dtype, op, [&]<class T, class Op>(TypeTag<T>, TypeTag<Op>) {
    reduce_fast<T, Op>(sources, destinations, count.value, scale);
  });
}

}  // namespace ringsmith::kernels::cpu
