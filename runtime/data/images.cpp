#include "runtime/data/images.hpp"

#include <cstddef>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith {

ImageDataset::ImageDataset(GreyImages images, int classes, float mean, float stddev)
    : images_(std::move(images)), mean_(mean), stddev_(stddev) {
  require(images_.height > 0 && images_.width > 0, "images need at least one pixel, got " +
                                                       std::to_string(images_.height) + " x " +
                                                       std::to_string(images_.width));
  const auto area = static_cast<std::size_t>(images_.height * images_.width);
  require(images_.pixels.size() == images_.labels.size() * area,
          std::to_string(images_.pixels.size()) + " pixels are not " +
              std::to_string(images_.labels.size()) + " images of " + std::to_string(area));
  for (std::size_t i = 0; i < images_.labels.size(); ++i)
    require(images_.labels[i] < classes,
            "label " + std::to_string(i) + " is " + std::to_string(images_.labels[i]) +
                ", but labels must be below " + std::to_string(classes));
}

Batch ImageDataset::get(std::span<const std::int64_t> indices) const {
  const auto n = static_cast<std::int64_t>(indices.size());
  Batch batch{Tensor::empty({n, 1, images_.height, images_.width}),
              Tensor::empty({n}, {DType::i64})};
  const std::int64_t area = images_.height * images_.width;
  auto* out = batch.inputs.data<float>();
  auto* target = batch.targets.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    check_index(index);
    const std::uint8_t* image = images_.pixels.data() + index * area;
    for (std::int64_t i = 0; i < area; ++i)
      *out++ = (static_cast<float>(image[i]) / 255.0F - mean_) / stddev_;
    *target++ = images_.labels[static_cast<std::size_t>(index)];
  }
  return batch;
}

}  // namespace ringsmith
