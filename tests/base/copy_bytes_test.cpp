#include "runtime/base/copy_bytes.hpp"

#include <cstring>
#include <vector>

#include "tests/support/catch.hpp"

using namespace ringsmith;

TEST_CASE("copy_bytes copies every byte of any length and place, and no other") {
  for (const std::size_t bytes : {0U, 1U, 31U, 255U, 256U, 1023U, 1024U, 1025U, 1279U, 1280U, 4096U,
                                  5000U, 65'536U, 65'537U, 1'048'577U})
    for (const std::size_t from : {0U, 1U, 31U, 64U})
      for (const std::size_t to : {0U, 3U, 32U}) {
        std::vector<unsigned char> source(from + bytes), out(to + bytes + 300, 0xEE);
        for (std::size_t i = 0; i < source.size(); ++i)
          source[i] = static_cast<unsigned char>((i * 131 + i / 256) % 251);
        copy_bytes(out.data() + to, source.data() + from, bytes);
        std::vector<unsigned char> want(out.size(), 0xEE);
        for (std::size_t i = 0; i < bytes; ++i) want[to + i] = source[from + i];
        CAPTURE(bytes, from, to);
        REQUIRE((out == want));
      }
}

TEST_CASE("copy_bytes moves between arrays that overlap, as memmove does") {
  constexpr std::size_t kBytes = 10'000;
  for (const int by :
       {-9'999, -4'096, -300, -256, -32, -1, 0, 1, 32, 256, 300, 4'096, 9'999, 10'000}) {
    std::vector<unsigned char> got(3 * kBytes);
    for (std::size_t i = 0; i < got.size(); ++i) got[i] = static_cast<unsigned char>(i * 7 % 253);
    std::vector<unsigned char> want = got;
    const auto at = static_cast<std::ptrdiff_t>(kBytes);
    std::memmove(want.data() + at + by, want.data() + at, kBytes);
    copy_bytes(got.data() + at + by, got.data() + at, kBytes);
    CAPTURE(by);
    REQUIRE((got == want));
  }
}

TEST_CASE("copy_bytes of nothing needs no address") { copy_bytes(nullptr, nullptr, 0); }
