// IDX, the file format of MNIST.
//
//   byte 0-1  zero        byte 2  element type (0x08 = unsigned byte)        byte 3  dimensions d
//   then d sizes as big-endian 32-bit numbers, then the elements, row-major
//
// A file that breaks any of this is refused with one line that names the file, what is wrong and
// what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/images.hpp"

namespace ringsmith {

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

}  // namespace ringsmith
