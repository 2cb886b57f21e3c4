// Compares Philox with its authors' known answers (Random123, kat_vectors), and tests the masks.
#include "kernels/dropout.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/mode.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::kernels;

namespace {

struct Mask {
  explicit Mask(std::size_t n) : size(n), memory(new bool[n]) {}
  std::size_t size;
  std::unique_ptr<bool[]> memory;
  [[nodiscard]] std::span<bool> span() const { return {memory.get(), size}; }
};

Mask draw(std::size_t n, double keep, PhiloxState state) {
  Mask mask(n);
  cpu::dropout_mask(mask.span(), keep, state);
  return mask;
}

}  // namespace

TEST_CASE("Philox-4x32-10 gives its authors' answers") {
  // The authors' vector of all ones cannot be tested, because their counter has 128 bits and ours
  // only the lower 64.
  CHECK(philox(0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

TEST_CASE("a mask keeps about what was asked for, exactly all for 1 and nothing for 0") {
  constexpr std::size_t kN = 100'001;
  for (const double keep : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const Mask mask = draw(kN, keep, {.seed = 42});
    double kept = 0;
    for (const bool k : mask.span()) kept += k ? 1 : 0;
    const double deviation = std::sqrt(keep * (1 - keep) * kN);
    CHECK(std::abs(kept - keep * kN) <= 4 * deviation);
  }
}

TEST_CASE("a mask that continues where another ended equals one long mask; seeds differ") {
  constexpr std::size_t kFirst = 1000, kSecond = 77;
  const Mask whole = draw(kFirst + kSecond, 0.5, {.seed = 7, .offset = 5});
  const Mask tail = draw(kSecond, 0.5, {.seed = 7, .offset = 5 + philox_blocks(kFirst)});
  CHECK(std::equal(tail.span().begin(), tail.span().end(), whole.span().begin() + kFirst));
  const Mask other = draw(kFirst + kSecond, 0.5, {.seed = 8, .offset = 5});
  CHECK(!std::equal(other.span().begin(), other.span().end(), whole.span().begin()));
}

TEST_CASE("threads change no bit of a mask") {
  const Mask one = draw(50'003, 0.8, {.seed = 3});
  set_threads(3);
  const Mask three = draw(50'003, 0.8, {.seed = 3});
  set_threads(1);
  CHECK(std::equal(one.span().begin(), one.span().end(), three.span().begin()));
}
