// Labelled grey images, kept as bytes and turned into floats batch by batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace ringsmith {

struct GreyImages {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  // (n, height, width), 0 is background
  std::vector<std::uint8_t> labels;  // (n)
};

// inputs are f32 of shape (batch, 1, height, width), (pixel / 255 - mean) / stddev; targets are i64
// of shape (batch). The default mean and stddev are those of MNIST's training images.
class ImageDataset : public Dataset {
 public:
  // UsageError if pixels and labels do not fit each other, or a label is not below classes.
  explicit ImageDataset(GreyImages images, int classes = 10, float mean = 0.1307F,
                        float stddev = 0.3081F);

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(images_.labels.size());
  }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override;
  [[nodiscard]] const GreyImages& images() const { return images_; }

 private:
  GreyImages images_;
  float mean_;
  float stddev_;
};

}  // namespace ringsmith
