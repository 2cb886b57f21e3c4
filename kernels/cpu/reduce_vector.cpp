// The fast version: one pass over memory, the running result in registers.
//
// The arrays are walked in steps of kUnroll vectors. At each step all sources are combined into
// kUnroll accumulators, which are then stored to every destination; so a destination may be a
// source, and each byte is read and written once however many ranks take part. The vectors are the
// compiler's (vector_size), not one instruction set's. The 16-bit types are widened to float when
// loaded and rounded to 16 bits after every operation.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/cpu/reduce_ops.hpp"
#include "kernels/reduce.hpp"

namespace ringsmith::kernels::cpu {

namespace {

#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif
constexpr std::size_t kUnroll = 4;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
using Floats = VectorOf<float>::type;
using Words = VectorOf<std::uint32_t>::type;
typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));

template <class V>
V load_bytes(const std::byte* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A mask of the lanes that hold NaN, the only value that differs from itself; integers have none.
template <class V>
auto nan_in(const V& v) {
  return v != v;  // NOLINT(misc-redundant-expression)
}

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

// How a vector of elements is loaded, combined and stored.
template <class T, class Op>
struct Lanes {
  // Integers add and multiply unsigned, so that overflow wraps; they compare with their sign.
  static constexpr bool kWraps =
      std::is_integral_v<T> && (std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>);
  using Element =
      typename std::conditional_t<kWraps, std::make_unsigned<T>, std::type_identity<T>>::type;
  using V = typename VectorOf<Element>::type;
  static constexpr std::size_t kBytes = kVectorBytes;  // in memory
  static V load(const std::byte* p) { return load_bytes<V>(p); }
  static void store(std::byte* p, const V& v) { std::memcpy(p, &v, sizeof v); }
  static V scaled(const V& v, double scale) { return v * static_cast<Element>(scale); }
  static V combine(const V& a, const V& b) { return combine_vectors<Op>(a, b); }
};

// bf16 is the upper half of a float. Rounding to nearest even: add half of the last kept bit, and
// one more if that bit is set; NaN must not be carried over into infinity.
template <class Op>
struct Lanes<bf16, Op> {
  using V = Floats;
  static constexpr std::size_t kBytes = kVectorBytes / 2;
  static V load(const std::byte* p) {
    return std::bit_cast<V>(__builtin_convertvector(load_bytes<Halves>(p), Words) << 16);
  }
  static Words rounded_bits(const V& v) {
    const Words u = std::bit_cast<Words>(v);
    const Words nan = (u >> 16) | 0x40U, finite = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    return nan_in(v) ? nan : finite;
  }
  static void store(std::byte* p, const V& v) {  // v is rounded already
    const Halves h = __builtin_convertvector(std::bit_cast<Words>(v) >> 16, Halves);
    std::memcpy(p, &h, sizeof h);
  }
  static V round(const V& v) { return std::bit_cast<V>(rounded_bits(v) << 16); }
  static V scaled(const V& v, double scale) { return round(v * static_cast<float>(scale)); }
  static V combine(const V& a, const V& b) { return round(combine_vectors<Op>(a, b)); }
};

// f16 needs the conversions of the hardware (F16C, AVX-512 or arm64); without them, one at a time.
template <class Op>
struct Lanes<f16, Op> {
  using V = Floats;
  static constexpr std::size_t kBytes = kVectorBytes / 2;
  static V load(const std::byte* p) { return widen(load_bytes<Halves>(p)); }
  static void store(std::byte* p, const V& v) {
    const Halves h = narrow(v);
    std::memcpy(p, &h, sizeof h);
  }
  static V scaled(const V& v, double scale) { return round(v * static_cast<float>(scale)); }
  static V combine(const V& a, const V& b) { return round(combine_vectors<Op>(a, b)); }

 private:
  static V round(const V& v) { return widen(narrow(v)); }
#if defined(__AVX512F__)
  static V widen(const Halves& h) {
    return std::bit_cast<V>(_mm512_cvtph_ps(std::bit_cast<__m256i>(h)));
  }
  static Halves narrow(const V& v) {
    return std::bit_cast<Halves>(
        _mm512_cvtps_ph(std::bit_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  static V widen(const Halves& h) {
    return std::bit_cast<V>(_mm256_cvtph_ps(std::bit_cast<__m128i>(h)));
  }
  static Halves narrow(const V& v) {
    return std::bit_cast<Halves>(
        _mm256_cvtps_ph(std::bit_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__aarch64__)
  static V widen(const Halves& h) {
    return std::bit_cast<V>(vcvt_f32_f16(std::bit_cast<float16x4_t>(h)));
  }
  static Halves narrow(const V& v) {
    return std::bit_cast<Halves>(vcvt_f16_f32(std::bit_cast<float32x4_t>(v)));
  }
#else
  static V widen(const Halves& h) {
    V v;
    for (std::size_t i = 0; i < kVectorBytes / sizeof(float); ++i) {
      f16 x;
      x.bits = h[i];
      v[i] = static_cast<float>(x);
    }
    return v;
  }
  static Halves narrow(const V& v) {
    Halves h;
    for (std::size_t i = 0; i < kVectorBytes / sizeof(float); ++i) h[i] = f16(v[i]).bits;
    return h;
  }
#endif
};

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
void reduce_vectors(std::span<const ReduceSource> sources, std::span<std::byte* const> out,
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
    for (std::byte* const d : out)
      for (std::size_t k = 0; k < kUnroll; ++k) L::store(d + at + k * L::kBytes, acc[k]);
  }
  for (; at < bytes; at += sizeof(T)) {
    const T result = reduce_one<T, Op>(sources, at, scale);
    for (std::byte* const d : out) std::memcpy(d + at, &result, sizeof(T));
  }
}

void copy_bytes(const std::byte* source, std::span<std::byte* const> out, std::size_t bytes) {
  // Block by block, so that with several destinations the source is read from memory once.
  const std::size_t step = out.size() == 1 ? bytes : std::size_t{16} << 10;
  for (std::size_t at = 0; at < bytes; at += step)
    for (std::byte* d : out)
      if (d != source) std::memcpy(d + at, source + at, std::min(step, bytes - at));
}

}  // namespace

void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> destinations, Elements count, double scale) {
  check_reduce(dtype, sources, scale);
  if (count.value == 0) return;
  if (sources.size() == 1 && !sources[0].scaled)
    return copy_bytes(sources[0].data, destinations, bytes_of(count, size_of(dtype)).value);
  visit_reduction(dtype, op, [&]<class T, class Op>(TypeTag<T>, TypeTag<Op>) {
    reduce_vectors<T, Op>(sources, destinations, count.value, scale);
  });
}

}  // namespace ringsmith::kernels::cpu
