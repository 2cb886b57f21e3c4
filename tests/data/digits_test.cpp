#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "runtime/data/images.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

using Image = std::vector<std::uint8_t>;

Image image(const GreyImages& set, std::size_t i) {
  const auto first = set.pixels.begin() + static_cast<std::ptrdiff_t>(i * 784);
  return {first, first + 784};
}

}  // namespace

TEST_CASE("digits depend on the seed and the index only") {
  const GreyImages a = draw_digits(50, 3);
  const GreyImages longer = draw_digits(80, 3);
  CHECK(std::equal(a.pixels.begin(), a.pixels.end(), longer.pixels.begin()));
  CHECK(std::equal(a.labels.begin(), a.labels.end(), longer.labels.begin()));
  CHECK(draw_digits(50, 4).pixels != a.pixels);
  CHECK(draw_digits(0, 3).labels.empty());
}

TEST_CASE("all ten digits are drawn about equally often, with ink inside the frame") {
  const GreyImages set = draw_digits(2000, 1);
  std::array<int, 10> counts{};
  for (std::size_t i = 0; i < set.labels.size(); ++i) {
    ++counts.at(set.labels[i]);
    const Image digit = image(set, i);
    const auto ink = std::count_if(digit.begin(), digit.end(), [](int v) { return v > 128; });
    CHECK(ink > 12);
    CHECK(ink < 300);
    const auto border =
        std::count_if(digit.begin(), digit.begin() + 28, [](int v) { return v > 128; });
    CHECK(border == 0);
  }
  for (const int n : counts) {
    CHECK(n > 140);
    CHECK(n < 260);
  }
}

// Classifies each digit by its nearest neighbour in pixels. If the share of right answers is well
// above chance, the shapes differ. If no digit equals its nearest neighbour, the shapes vary.
TEST_CASE("the digits are different shapes, and not ten fixed pictures") {
  const GreyImages train = draw_digits(1500, 1);
  const GreyImages test = draw_digits(150, 2);
  int right = 0;
  for (std::size_t t = 0; t < test.labels.size(); ++t) {
    const Image x = image(test, t);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    std::size_t nearest = 0;
    for (std::size_t i = 0; i < train.labels.size(); ++i) {
      std::int64_t d = 0;
      for (std::size_t p = 0; p < 784; ++p) {
        const int e = int(x[p]) - int(train.pixels[i * 784 + p]);
        d += e * e;
      }
      if (d < best) best = d, nearest = i;
    }
    CHECK(best > 0);
    right += train.labels[nearest] == test.labels[t] ? 1 : 0;
  }
  INFO(right << " of 150");
  CHECK(right > 105);
}
