#include "runtime/data/images.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/data/loader.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

constexpr std::int64_t kChannels = 2, kHeight = 5, kWidth = 4, kPad = 2;
const PixelStatistics kAsTheyAre{{0, 0}, {1, 1}};

// Returns n images. Within an image, no two pixels are equal, and none is 0.
Images numbered(std::int64_t n) {
  constexpr std::int64_t kArea = kChannels * kHeight * kWidth;
  Images images{kHeight, kWidth, {}, {}, kChannels};
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t p = 0; p < kArea; ++p)
      images.pixels.push_back(static_cast<std::uint8_t>(1 + (p + i) % 255));
    images.labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return images;
}

std::vector<std::int64_t> first(std::int64_t n) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  return out;
}

// Returns the part of the padded image that begins at (down, right), mirrored or not.
std::vector<float> cut(const Images& images, std::int64_t i, std::int64_t down, std::int64_t right,
                       bool flip) {
  std::vector<float> out;
  for (std::int64_t c = 0; c < kChannels; ++c)
    for (std::int64_t y = 0; y < kHeight; ++y)
      for (std::int64_t x = 0; x < kWidth; ++x) {
        const std::int64_t row = y + down, column = (flip ? kWidth - 1 - x : x) + right;
        const bool black = row < 0 || row >= kHeight || column < 0 || column >= kWidth;
        const std::int64_t at = ((i * kChannels + c) * kHeight + row) * kWidth + column;
        out.push_back(
            black ? 0 : static_cast<float>(images.pixels[static_cast<std::size_t>(at)]) / 255.0F);
      }
  return out;
}

using Image = std::vector<std::uint8_t>;
Image image_of(const Images& set, std::size_t i) {
  const auto size = static_cast<std::size_t>(set.channels * set.height * set.width);
  const auto begin = set.pixels.begin() + static_cast<std::ptrdiff_t>(i * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

TEST_CASE("a crop is one of all places in the frame, mirrored in half of the cases") {
  constexpr std::int64_t kSamples = 60, kEpochs = 40;
  const Images images = numbered(kSamples);
  const ImageDataset dataset(images, 10, kAsTheyAre, {.pad = kPad, .flip = true, .seed = 5});
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> seen;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Batch batch = dataset.get_in_epoch(first(kSamples), epoch);
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const auto got = batch.inputs.select(0, i).to_vector<float>();
      int places = 0;
      for (std::int64_t down = -kPad; down <= kPad; ++down)
        for (std::int64_t right = -kPad; right <= kPad; ++right)
          for (const bool flip : {false, true})
            if (got == cut(images, i, down, right, flip)) {
              ++places;
              ++seen[{down, right, flip}];
            }
      REQUIRE(places == 1);
    }
  }
  CHECK(seen.size() == 50);  // 25 positions, two directions: about 48 of 2400 each
  for (const auto& [place, times] : seen) {
    CHECK(times > 20);
    CHECK(times < 80);
  }
}

TEST_CASE("without augmentation every epoch shows the images as they are") {
  const Images images = numbered(7);
  const ImageDataset dataset(images, 10, kAsTheyAre);
  const auto plain = dataset.get(first(7)).inputs.to_vector<float>();
  CHECK(dataset.get_in_epoch(first(7), 3).inputs.to_vector<float>() == plain);
  const auto third = dataset.get(std::vector<std::int64_t>{2}).inputs.to_vector<float>();
  CHECK(third == cut(images, 2, 0, 0, false));
  // get() is for evaluation, so it does not augment.
  const ImageDataset augmented(images, 10, kAsTheyAre, {.pad = kPad, .flip = true});
  CHECK(augmented.get(first(7)).inputs.to_vector<float>() == plain);
}

TEST_CASE(
    "any number of ranks and of loader threads sees the same picture of a sample in an epoch") {
  constexpr std::int64_t kSamples = 24;
  const ImageDataset dataset(numbered(kSamples), 10, kAsTheyAre,
                             {.pad = kPad, .flip = true, .seed = 1});
  const auto pictures = [&](std::int64_t epoch) {
    std::vector<std::vector<float>> out;
    for (std::int64_t i = 0; i < kSamples; ++i)
      out.push_back(
          dataset.get_in_epoch(std::vector<std::int64_t>{i}, epoch).inputs.to_vector<float>());
    return out;
  };
  const auto want = pictures(4);
  for (const int world : {1, 2, 3, 4})
    for (const int workers : {0, 3})
      for (int rank = 0; rank < world; ++rank) {
        DistributedSampler sampler(kSamples, {.replicas = world, .rank = rank, .seed = 9});
        sampler.set_epoch(4);
        const auto order = sampler.indices();
        DataLoader loader(dataset, sampler, {.batch_size = 5, .workers = workers});
        auto epoch = loader.epoch();
        std::size_t next = 0;
        while (const auto batch = epoch.next())
          for (std::int64_t i = 0; i < batch->inputs.size(0); ++i)
            CHECK(batch->inputs.select(0, i).to_vector<float>() ==
                  want[static_cast<std::size_t>(order[next++])]);
        CHECK(next == order.size());
      }
  int other = 0;
  const auto later = pictures(5);
  for (std::size_t i = 0; i < later.size(); ++i) other += later[i] != want[i] ? 1 : 0;
  CHECK(other > kSamples / 2);
  const ImageDataset reseeded(numbered(kSamples), 10, kAsTheyAre,
                              {.pad = kPad, .flip = true, .seed = 2});
  CHECK(reseeded.get_in_epoch(first(kSamples), 4).inputs.to_vector<float>() !=
        dataset.get_in_epoch(first(kSamples), 4).inputs.to_vector<float>());
}

TEST_CASE("after normalisation each channel has mean 0 and deviation 1") {
  const Images images = draw_shapes(50, 3);
  const PixelStatistics statistics = statistics_of(images);
  const Batch batch = ImageDataset(images, 10, statistics).get(first(50));
  CHECK(batch.inputs.sizes() == Shape{50, 3, 32, 32});
  const auto values = batch.inputs.to_vector<float>();
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (i / 1024 % 3 == c) sum += values[i], squares += double(values[i]) * values[i];
    CHECK(std::abs(sum / 51200) < 1e-5);
    CHECK(std::abs(squares / 51200 - 1) < 1e-5);
  }
  const PixelStatistics flat = statistics_of({1, 2, {7, 7}, {0}});
  CHECK(flat.stddev == std::vector<float>{1});  // not 0, because it is a divisor
  CHECK_THROWS_AS(statistics_of({}), UsageError);
}

TEST_CASE("images and statistics that do not fit each other are refused") {
  CHECK_THROWS_WITH(ImageDataset(numbered(1), 10, {{0}, {1}}), ContainsSubstring("2 channels"));
  CHECK_THROWS_WITH(ImageDataset(numbered(1), 10, kAsTheyAre, {.pad = -1}),
                    ContainsSubstring("negative"));
  CHECK_THROWS_WITH(ImageDataset(numbered(5), 4, kAsTheyAre), ContainsSubstring("below 4"));
}

TEST_CASE(
    "shapes depend on the seed and the index only, and all ten are drawn about equally often") {
  const Images a = draw_shapes(50, 3), longer = draw_shapes(1000, 3);
  CHECK(std::equal(a.pixels.begin(), a.pixels.end(), longer.pixels.begin()));
  CHECK(std::equal(a.labels.begin(), a.labels.end(), longer.labels.begin()));
  CHECK(draw_shapes(50, 4).pixels != a.pixels);
  CHECK(draw_shapes(0, 3).labels.empty());
  std::array<int, 10> counts{};
  for (const std::uint8_t label : longer.labels) ++counts.at(label);
  for (const int n : counts) {
    CHECK(n > 60);
    CHECK(n < 140);
  }
}

// The nearest neighbour of a picture, in pixels, must mostly be a different shape with similar
// colours, and never an identical picture.
TEST_CASE("shapes are not told apart by their colours") {
  const Images train = draw_shapes(600, 1), test = draw_shapes(100, 2);
  int right = 0;
  for (std::size_t t = 0; t < test.labels.size(); ++t) {
    const Image x = image_of(test, t);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    std::size_t nearest = 0;
    for (std::size_t i = 0; i < train.labels.size(); ++i) {
      const Image y = image_of(train, i);
      std::int64_t d = 0;
      for (std::size_t p = 0; p < x.size(); ++p)
        d += (int(x[p]) - int(y[p])) * (int(x[p]) - int(y[p]));
      if (d < best) best = d, nearest = i;
    }
    CHECK(best > 0);
    right += train.labels[nearest] == test.labels[t] ? 1 : 0;
  }
  INFO(right << " of 100");
  CHECK(right < 50);
}
