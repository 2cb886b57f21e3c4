// CRC32C (Castagnoli; RFC 3720, appendix B.4, has test vectors): the remainder of the bytes, taken
// as a polynomial with coefficients 0 and 1, after division by a polynomial of degree 32. It
// detects every error that spans at most 32 bits, and misses one in four billion of the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringsmith::comm::tcp {

// Returns the checksum of `bytes` appended to the bytes whose checksum is `before`. The checksum of
// no bytes is 0.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// One of the implementations. All give the same result.
struct Crc32cWay {
  const char* name;
  std::uint32_t (*compute)(std::span<const std::byte> bytes, std::uint32_t before);
};
// Returns the implementations that this processor supports. The first is the reference; crc32c()
// uses the last.
[[nodiscard]] std::span<const Crc32cWay> crc32c_ways();

}  // namespace ringsmith::comm::tcp
