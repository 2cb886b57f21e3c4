// Labelled images, stored as bytes and converted to floats per batch: from MNIST, from CIFAR-10, or
// drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace ringsmith {

struct Images {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  // (n, channels, height, width)
  std::vector<std::uint8_t> labels;  // (n)
  std::int64_t channels = 1;         // 1: grey, 0 is background; 3: red, green, blue
};
using GreyImages = Images;  // channels == 1

// Mean and standard deviation of pixel / 255, for each channel.
struct PixelStatistics {
  std::vector<float> mean, stddev;
};
// Throws UsageError if there are no pixels. A channel with a single value has deviation 1.
[[nodiscard]] PixelStatistics statistics_of(const Images& images);

// Random changes to a training image: it is padded with black, cropped to the original size at a
// random position, and perhaps mirrored.
//
//     +-pad-------+
//     |  +-----+  |       (seed, epoch, sample) determine one of (2 pad + 1)^2 positions and one of
//     |  |    +--+|--+    two directions, so the result does not depend on the number of ranks or
//     |  |    |  ||  |    loader threads
//     |  +----|--+|  |
//     +-------|---+  |
//             +------+
struct Augmentation {
  std::int64_t pad = 0;  // pixels on each side; 0: no crop
  bool flip = false;     // mirrors an image with probability 1/2
  std::uint64_t seed = 0;
};

// inputs: f32 (batch, channels, height, width), (pixel / 255 - mean) / stddev; targets: i64
// (batch).
class ImageDataset : public Dataset {
 public:
  // Throws UsageError if pixels, labels and statistics do not match, a label is not below classes,
  // or the pad is negative.
  ImageDataset(Images images, int classes, const PixelStatistics& statistics,
               Augmentation augmentation = {});
  // For grey images. The defaults are the mean and stddev of MNIST's training images.
  explicit ImageDataset(GreyImages images, int classes = 10, float mean = 0.1307F,
                        float stddev = 0.3081F);

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(images_.labels.size());
  }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override;
  [[nodiscard]] Batch get_in_epoch(std::span<const std::int64_t> indices,
                                   std::int64_t epoch) const override;
  [[nodiscard]] const Images& images() const { return images_; }

 private:
  struct Crop {
    std::int64_t down = 0, right = 0;  // offset of the crop relative to the image
    bool flip = false;
  };
  [[nodiscard]] Crop placement_of(std::int64_t index, std::int64_t epoch) const;
  template <class PlacementOf>
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> indices,
                                 const PlacementOf& placement_of) const;

  Images images_;
  std::vector<float> values_;  // (channels, 256): the normalised value of each byte
  Augmentation augmentation_;
};

// ---- IDX, the file format of MNIST ----
//
//   byte 0-1  zero        byte 2  element type (0x08 = unsigned byte)        byte 3  dimensions d
//   then d sizes as big-endian 32-bit numbers, then the elements, row-major
//
// A file that violates this format is rejected with one line: the file, the fault and the remedy.
struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;
};

// Element types other than unsigned bytes are rejected.
[[nodiscard]] IdxArray read_idx(const std::string& path);

// Reads images (n, height, width) and labels (n), each below classes.
[[nodiscard]] GreyImages load_idx_images(const std::string& images_path,
                                         const std::string& labels_path, int classes = 10);

// Reads a folder with MNIST's usual names: train-images-idx3-ubyte and train-labels-idx1-ubyte, or
// t10k- instead of train-. The spelling with a dot, train-images.idx3-ubyte, is accepted, too.
[[nodiscard]] GreyImages load_mnist(const std::string& folder, bool train);
[[nodiscard]] bool has_mnist(const std::string& folder);  // training images, under either name

// ---- CIFAR-10, binary version ----
//
//   record   label, 0..9 | 1024 bytes of red, row by row | 1024 of green | 1024 of blue
//
// Reads data_batch_1.bin to data_batch_5.bin (train) or test_batch.bin, from this folder or its
// subfolder cifar-10-batches-bin, as in the archive. Throws UsageError naming the file if it is
// missing, does not contain a whole number of records, or has a label above 9.
[[nodiscard]] Images load_cifar10(const std::string& folder, bool train);
// The folder with the files; empty if there is no data_batch_1.bin.
[[nodiscard]] std::string find_cifar10(const std::string& folder);

// ---- drawn digits that look handwritten: a data set without a download ----
//
// Each digit consists of a few pen strokes on the unit square (digits.cpp). A sample jitters their
// points, then scales, shears, rotates and shifts them, draws them with a pen of random width, and
// adds noise. Sample i depends only on (seed, i), so a longer set begins with the shorter one.
//
// Returns n images of 28 x 28 with random labels 0..9.
[[nodiscard]] GreyImages draw_digits(std::int64_t n, std::uint64_t seed);

// ---- coloured shapes, also drawn (shapes.cpp) ----
//
// disc, ring, square, frame, triangle, plus, star, half disc, moon, bars: labels 0 to 9. The
// colours of shape and ground are random but distinct: only the form identifies the class.
//
// Returns n images of 3 x 32 x 32.
[[nodiscard]] Images draw_shapes(std::int64_t n, std::uint64_t seed);

}  // namespace ringsmith
