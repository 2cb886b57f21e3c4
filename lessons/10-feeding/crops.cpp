// crops WORLD EPOCH: which random crop of a sample the ranks see. Six black images of 9 x 9
// pixels, each with one bright pixel in the middle: its place in the result shows the crop.
#include <cstdio>

#include "lessons/arguments.hpp"
#include "runtime/data/images.hpp"
#include "runtime/data/loader.hpp"

using namespace ringsmith;

int main(int argc, char** argv) {
  const lessons::Arguments given(argc, argv, "crops [WORLD [EPOCH]]", 2);
  const int world = static_cast<int>(given.whole(1, 1, 1, 1000));
  const long epoch = given.whole(2, 0, 0, 1'000'000);
  constexpr std::int64_t kImages = 6, kSide = 9, kMiddle = 4;
  Images images{kSide, kSide, std::vector<std::uint8_t>(kImages * kSide * kSide), {}};
  for (std::int64_t i = 0; i < kImages; ++i) {
    images.pixels[static_cast<std::size_t>((i * kSide + kMiddle) * kSide + kMiddle)] = 255;
    images.labels.push_back(static_cast<std::uint8_t>(i));  // the sample's number
  }
  const ImageDataset dataset(images, kImages, {{0}, {1}}, {.pad = 4, .seed = 7});
  for (int rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(kImages, {.replicas = world, .rank = rank});
    sampler.set_epoch(epoch);
    DataLoader loader(dataset, sampler, {.batch_size = 1, .workers = 2});
    auto pass = loader.epoch();
    while (const auto batch = pass.next()) {
      const auto pixels = batch->inputs.to_vector<float>();
      std::size_t bright = 0;
      while (pixels.at(bright) == 0) ++bright;
      const auto row = static_cast<std::int64_t>(bright) / kSide,
                 column = static_cast<std::int64_t>(bright) % kSide;
      std::printf("rank %d  sample %lld  moved by (%+lld, %+lld)\n", rank,
                  static_cast<long long>(batch->targets.item<std::int64_t>()),
                  static_cast<long long>(kMiddle - row), static_cast<long long>(kMiddle - column));
    }
  }
}
