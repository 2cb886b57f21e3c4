#include "runtime/base/dtype.hpp"

#include <cmath>
#include <limits>

#include "tests/support/catch.hpp"

using namespace ringsmith;

TEMPLATE_TEST_CASE("every 16-bit code survives the way to float and back", "[half]", f16, bf16) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    TestType h;
    h.bits = static_cast<std::uint16_t>(code);
    const float f = static_cast<float>(h);
    const TestType back(f);
    if (std::isnan(f)) {
      REQUIRE(std::isnan(static_cast<float>(back)));
    } else {
      REQUIRE(back.bits == h.bits);
    }
  }
}

TEMPLATE_TEST_CASE("rounding to 16 bits is to nearest, ties to even", "[half]", f16, bf16) {
  // Values below the middle of two neighbouring codes are rounded down, values above it up, and the
  // middle to even.
  const std::uint32_t limit = std::is_same_v<TestType, f16> ? 0x7bff : 0x7f7f;
  for (std::uint32_t code = 0; code < limit; ++code) {
    TestType lo, hi;
    lo.bits = static_cast<std::uint16_t>(code);
    hi.bits = static_cast<std::uint16_t>(code + 1);
    const float a = static_cast<float>(lo), b = static_cast<float>(hi);
    const float middle = static_cast<float>((static_cast<double>(a) + b) / 2);
    const TestType even = code % 2 == 0 ? lo : hi;
    REQUIRE(TestType(middle).bits == even.bits);
    REQUIRE(TestType(std::nextafter(middle, a)).bits == lo.bits);
    REQUIRE(TestType(std::nextafter(middle, b)).bits == hi.bits);
    REQUIRE(TestType(-middle).bits == (even.bits | 0x8000));
  }
}

TEST_CASE("f16 overflows to infinity at 65520, and keeps infinities and NaN", "[half]") {
  REQUIRE(static_cast<float>(f16(65519.0f)) == 65504.0f);
  REQUIRE(std::isinf(static_cast<float>(f16(65520.0f))));
  REQUIRE(std::isinf(static_cast<float>(f16(std::numeric_limits<float>::infinity()))));
  REQUIRE(std::isnan(static_cast<float>(f16(std::numeric_limits<float>::quiet_NaN()))));
  REQUIRE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("dtype names parse, and an unknown one names the choices", "[dtype]") {
  REQUIRE(parse_dtype("bf16") == DType::bf16);
  REQUIRE(parse_dtype("float") == DType::f32);
  REQUIRE_THROWS_WITH(parse_dtype("f8"), ContainsSubstring("'f8'") && ContainsSubstring("bf16"));
}
