#include "runtime/comm/transport/tcp/crc32c.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "tests/support/catch.hpp"

using namespace ringsmith::comm::tcp;

namespace {

using Bytes = std::span<const std::byte>;

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937 random(static_cast<std::uint32_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEST_CASE("CRC32C gives the numbers of RFC 3720, appendix B.4, in every way", "[crc32c]") {
  std::vector<std::byte> up(32);
  for (std::size_t i = 0; i < up.size(); ++i) up[i] = static_cast<std::byte>(i);
  const std::vector<std::byte> down(up.rbegin(), up.rend());
  std::vector<std::byte> command(48);  // an iSCSI SCSI Read (10)
  const std::map<std::size_t, std::uint8_t> set{{0, 0x01},  {1, 0xc0},  {16, 0x14}, {22, 0x04},
                                                {27, 0x14}, {31, 0x18}, {32, 0x28}, {40, 0x02}};
  for (const auto& [at, value] : set) command[at] = std::byte{value};
  const std::string_view digits = "123456789";  // the usual check input of CRC catalogues
  for (const Crc32cWay& way : crc32c_ways()) {
    INFO(way.name);
    CHECK(way.compute(std::vector<std::byte>(32), 0) == 0x8a9136aa);
    CHECK(way.compute(std::vector<std::byte>(32, std::byte{0xff}), 0) == 0x62a8ab43);
    CHECK(way.compute(up, 0) == 0x46dd794e);
    CHECK(way.compute(down, 0) == 0x113fdb5c);
    CHECK(way.compute(command, 0) == 0xd9963a56);
    CHECK(way.compute(std::as_bytes(std::span(digits)), 0) == 0xe3069283);
    CHECK(way.compute({}, 0) == 0);
  }
  CHECK(crc32c(up) == 0x46dd794e);
}

TEST_CASE("every way to compute CRC32C gives the table's, at any length and address", "[crc32c]") {
  const auto ways = crc32c_ways();
#if defined(__x86_64__)
  CHECK((ways.size() > 1) ==
        (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")));
#endif
  const std::vector<std::byte> bytes = random_bytes(400'000);
  std::size_t wrong = 0;
  const auto compare = [&](Bytes part, std::uint32_t before) {
    const std::uint32_t expected = ways.front().compute(part, before);
    for (const Crc32cWay& way : ways) wrong += way.compute(part, before) == expected ? 0 : 1;
    wrong += crc32c(part, before) == expected ? 0 : 1;
  };
  for (std::size_t at = 0; at < 16; ++at)
    for (std::size_t size = 0; size <= 300; ++size) compare(Bytes(bytes).subspan(at, size), 0);
  // Tries sizes around the loops' boundaries. The loop over three streams has blocks of 384 and
  // 3072 bytes; the AVX-512 loop has blocks of 256 bytes, from 512 bytes on.
  for (const std::size_t middle : {512, 768, 1024, 3072, 3456, 6144, 1 << 16, 188 << 10})
    for (std::size_t size = middle - 66; size <= middle + 66; ++size)
      compare(Bytes(bytes).subspan(size % 16, size), static_cast<std::uint32_t>(size));
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i)
    compare(Bytes(bytes).subspan(random() % 1000, random() % 300'000),
            static_cast<std::uint32_t>(random()));
  CHECK(wrong == 0);
}

TEST_CASE("CRC32C of pieces, one after another, is that of the whole", "[crc32c]") {
  const std::vector<std::byte> bytes = random_bytes(20'000);
  const std::uint32_t whole = crc32c_ways().front().compute(bytes, 0);
  std::mt19937 random(2);
  std::size_t wrong = 0;
  for (const Crc32cWay& way : crc32c_ways())
    for (int round = 0; round < 300; ++round) {
      std::uint32_t crc = 0;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t size =
            std::min<std::size_t>(random() % (1U << random() % 15), bytes.size() - at);
        crc = way.compute(Bytes(bytes).subspan(at, size), crc);
        at += size;
      }
      wrong += crc == whole ? 0 : 1;
    }
  CHECK(wrong == 0);
}
