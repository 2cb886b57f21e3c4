// There are three versions:
//
//   1. a table, one byte at a time: the reference for the others
//   2. the processor's instruction, 8 bytes at a time. On x86 its latency is 3 cycles, but a
//      new instruction can start in each cycle, so three streams run through three neighbouring
//      blocks
//   3. AVX-512: carry-less products fold 256 bytes at a time onto the next 256 ("Fast CRC
//      Computation for Generic Polynomials Using PCLMULQDQ Instruction", Gopal et al., Intel, 2009)
#include "runtime/comm/transport/tcp/crc32c.hpp"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace ringsmith::comm::tcp {

namespace {

// Bits are reversed: the highest bit of a word is the coefficient of x^0.
constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return value >> 1 ^ ((value & 1) != 0 ? kPolynomial : 0);
}

constexpr std::array<std::uint32_t, 256> kOfByte = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) table[byte] = times_x(table[byte]);
  }
  return table;
}();

std::uint32_t by_table(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (const std::byte b : bytes)
    crc = crc >> 8 ^ kOfByte[(crc ^ std::to_integer<std::uint32_t>(b)) & 0xff];
  return ~crc;
}

[[maybe_unused]] std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)

#define RINGSMITH_CRC32 [[gnu::target("sse4.2,pclmul")]]

// Returns x^n modulo the polynomial.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t power = 0x80000000;
  for (; n > 0; --n) power = times_x(power);
  return power;
}

RINGSMITH_CRC32 std::uint32_t one_stream(std::uint32_t crc, const std::byte* at, std::size_t size) {
  std::uint64_t wide = crc;
  for (; size >= 8; size -= 8, at += 8) wide = _mm_crc32_u64(wide, word_at(at));
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; --size, ++at) crc = _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

// Returns the checksum after `bytes` more zero bytes: multiplies by x^(8 bytes). The instruction
// contributes x^32, and the product of reversed words contributes one more x.
template <std::size_t bytes>
RINGSMITH_CRC32 std::uint32_t skip_bytes(std::uint64_t crc) {
  constexpr std::uint32_t kPower = power_of_x(8 * bytes - 33);
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                           _mm_cvtsi64_si128(static_cast<long long>(kPower)), 0);
  return static_cast<std::uint32_t>(
      _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product))));
}

// Consumes three blocks at a time while at least three are left.
template <std::size_t block>
RINGSMITH_CRC32 std::uint32_t three_streams(std::uint32_t crc, const std::byte*& at,
                                            std::size_t& size) {
  for (; size >= 3 * block; size -= 3 * block, at += 3 * block) {
    std::uint64_t a = crc, b = 0, c = 0;
    for (std::size_t i = 0; i < block; i += 8) {
      a = _mm_crc32_u64(a, word_at(at + i));
      b = _mm_crc32_u64(b, word_at(at + block + i));
      c = _mm_crc32_u64(c, word_at(at + 2 * block + i));
    }
    crc = skip_bytes<2 * block>(a) ^ skip_bytes<block>(b) ^ static_cast<std::uint32_t>(c);
  }
  return crc;
}

RINGSMITH_CRC32 std::uint32_t by_instruction(std::span<const std::byte> bytes,
                                             std::uint32_t before) {
  const std::byte* at = bytes.data();
  std::size_t size = bytes.size();
  std::uint32_t crc = three_streams<1024>(~before, at, size);
  crc = three_streams<128>(crc, at, size);
  return ~one_stream(crc, at, size);
}

#define RINGSMITH_FOLD [[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]]

// Moves each 16 bytes of `ahead` by `distance` bytes and adds them to the corresponding 16 bytes of
// `next`. The first 8 and the last 8 bytes are each multiplied by a power of x (see skip_bytes()
// for its exponent).
template <std::size_t distance>
RINGSMITH_FOLD __m512i fold(__m512i ahead, __m512i next) {
  constexpr std::int64_t kFirst = power_of_x(8 * distance + 64 - 33);
  constexpr std::int64_t kLast = power_of_x(8 * distance - 33);
  const __m512i powers = _mm512_set4_epi64(kLast, kFirst, kLast, kFirst);
  return _mm512_xor_si512(_mm512_xor_si512(_mm512_clmulepi64_epi128(ahead, powers, 0x00),
                                           _mm512_clmulepi64_epi128(ahead, powers, 0x11)),
                          next);
}

RINGSMITH_FOLD std::uint32_t by_folding(std::span<const std::byte> bytes, std::uint32_t before) {
  constexpr std::size_t kVector = 64, kAtOnce = 4 * kVector;
  if (bytes.size() < 2 * kAtOnce) return by_instruction(bytes, before);
  const std::byte* at = bytes.data();
  __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + kVector),
          c = _mm512_loadu_si512(at + 2 * kVector), d = _mm512_loadu_si512(at + 3 * kVector);
  a = _mm512_xor_si512(a,
                       _mm512_zextsi128_si512(_mm_cvtsi64_si128(static_cast<long long>(~before))));
  std::size_t left = bytes.size() - kAtOnce;
  for (at += kAtOnce; left >= kAtOnce; left -= kAtOnce, at += kAtOnce) {
    a = fold<kAtOnce>(a, _mm512_loadu_si512(at));
    b = fold<kAtOnce>(b, _mm512_loadu_si512(at + kVector));
    c = fold<kAtOnce>(c, _mm512_loadu_si512(at + 2 * kVector));
    d = fold<kAtOnce>(d, _mm512_loadu_si512(at + 3 * kVector));
  }
  d = fold<kVector>(fold<kVector>(fold<kVector>(a, b), c), d);
  for (; left >= kVector; left -= kVector, at += kVector)
    d = fold<kVector>(d, _mm512_loadu_si512(at));
  std::array<std::byte, kVector> folded;
  _mm512_storeu_si512(folded.data(), d);
  return ~one_stream(one_stream(0, folded.data(), folded.size()), at, left);
}

#undef RINGSMITH_CRC32
#undef RINGSMITH_FOLD

// A processor that supports one version supports all versions before it.
constexpr std::array kWays{Crc32cWay{"table", by_table},
                           Crc32cWay{"instruction, three streams", by_instruction},
                           Crc32cWay{"AVX-512", by_folding}};

std::size_t count_ways() {
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return 1;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") ? 3 : 2;
}

#elif defined(__ARM_FEATURE_CRC32)

std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t size = bytes.size();
  for (; size >= 8; size -= 8, at += 8) crc = __crc32cd(crc, word_at(at));
  for (; size > 0; --size, ++at) crc = __crc32cb(crc, std::to_integer<std::uint8_t>(*at));
  return ~crc;
}

constexpr std::array kWays{Crc32cWay{"table", by_table}, Crc32cWay{"instruction", by_instruction}};
std::size_t count_ways() { return kWays.size(); }

#else

constexpr std::array kWays{Crc32cWay{"table", by_table}};
std::size_t count_ways() { return kWays.size(); }

#endif

}  // namespace

std::span<const Crc32cWay> crc32c_ways() {
  static const std::size_t count = count_ways();
  return std::span(kWays).first(count);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  static const auto compute = crc32c_ways().back().compute;
  return compute(bytes, before);
}

}  // namespace ringsmith::comm::tcp
