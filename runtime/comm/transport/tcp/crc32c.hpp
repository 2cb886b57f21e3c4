// CRC32C (Castagnoli; RFC 3720, appendix B.4, has test vectors): the bytes as a polynomial with
// coefficients 0 and 1, and its remainder after division by one of degree 32. It finds every error
// that spans at most 32 bits, and misses one in four billion of the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringsmith::comm::tcp {

// Of `bytes`; with the checksum of the bytes before them, of both together. Of no bytes: 0.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// One of the ways to compute it, which all give the same.
struct Crc32cWay {
  const char* name;
  std::uint32_t (*compute)(std::span<const std::byte> bytes, std::uint32_t before);
};
// Those that this processor has: the first is the oracle of the others, the last is crc32c()'s.
[[nodiscard]] std::span<const Crc32cWay> crc32c_ways();

}  // namespace ringsmith::comm::tcp
