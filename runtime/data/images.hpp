// Labelled grey images, kept as bytes and turned into floats batch by batch; read from MNIST's
// files or drawn.
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

// ---- IDX, the file format of MNIST ----
//
//   byte 0-1  zero        byte 2  element type (0x08 = unsigned byte)        byte 3  dimensions d
//   then d sizes as big-endian 32-bit numbers, then the elements, row-major
//
// A file that breaks any of this is refused with one line that names the file, what is wrong and
// what to do.
struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;
};

// Elements of unsigned bytes only.
[[nodiscard]] IdxArray read_idx(const std::string& path);

// A pair of files: images (n, height, width) and labels (n), each label below classes.
[[nodiscard]] GreyImages load_idx_images(const std::string& images_path,
                                         const std::string& labels_path, int classes = 10);

// A folder with MNIST's usual names: train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-
// instead of train-. The spelling with a dot, train-images.idx3-ubyte, is accepted too.
[[nodiscard]] GreyImages load_mnist(const std::string& folder, bool train);

// ---- handwritten-looking digits, drawn: a data set that needs no download ----
//
// Each digit is a few pen strokes on the unit square (digits.cpp). A sample jitters their points,
// then rotates, shears, scales and shifts them, draws them with a pen of random width, and adds
// noise. Sample i depends on (seed, i) only, so a longer set begins with the shorter one.
//
// n images of 28 x 28 with labels 0..9, in random order. Use another seed for held-out digits.
[[nodiscard]] GreyImages draw_digits(std::int64_t n, std::uint64_t seed);

}  // namespace ringsmith
