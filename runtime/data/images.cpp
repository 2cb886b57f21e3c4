#include "runtime/data/images.hpp"

#include <cstddef>
#include <filesystem>
#include <limits>
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

namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr const char* kAgain = "; fetch or unpack the file again";

std::uint32_t big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  const std::vector<std::uint8_t> file = read_file(path, "IDX file");
  const auto fail = [&](const std::string& what) {
    throw UsageError("IDX file '" + path + "' " + what);
  };
  if (file.empty()) fail(std::string("is empty") + kAgain);
  if (file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b)
    fail("is gzip-compressed; unpack it first: gunzip '" + path + "'");
  if (file.size() < 4) fail("is truncated within its first 4 bytes" + std::string(kAgain));
  if (file[0] != 0 || file[1] != 0 || file[3] == 0)
    fail("does not start with an IDX magic number; give a file in MNIST's format");
  if (file[2] != kUnsignedByte)
    fail("has element type " + std::to_string(file[2]) + ", only 8 (unsigned byte) is supported");
  const std::size_t header = 4 + 4 * std::size_t{file[3]};
  if (file.size() < header) fail("is truncated within its header" + std::string(kAgain));

  IdxArray array;
  std::uint64_t expected = 1;
  for (std::size_t d = 0; d < file[3]; ++d) {
    const std::uint32_t size = big_endian(&file[4 + 4 * d]);
    if (size != 0 && expected > std::numeric_limits<std::uint64_t>::max() / size)
      fail("claims more elements than a file can hold" + std::string(kAgain));
    expected *= size;
    array.sizes.push_back(size);
  }
  if (file.size() - header != expected)
    fail((file.size() - header < expected ? "is truncated: " : "is too long: ") +
         std::to_string(file.size() - header) + " bytes of data, its header promises " +
         std::to_string(expected) + kAgain);
  array.bytes.assign(file.begin() + static_cast<std::ptrdiff_t>(header), file.end());
  return array;
}

GreyImages load_idx_images(const std::string& images_path, const std::string& labels_path,
                           int classes) {
  IdxArray images = read_idx(images_path);
  IdxArray labels = read_idx(labels_path);
  const auto want = [](const std::string& path, const IdxArray& a, std::size_t dims,
                       const char* what) {
    require(a.sizes.size() == dims,
            "IDX file '" + path + "' has " + std::to_string(a.sizes.size()) + " dimensions, " +
                what + " have " + std::to_string(dims) + "; are the two files swapped?");
    require(a.sizes[0] > 0, "IDX file '" + path + "' holds no " + what);
  };
  want(images_path, images, 3, "images");
  want(labels_path, labels, 1, "labels");
  require(images.sizes[0] == labels.sizes[0],
          "IDX files do not belong together: " + std::to_string(images.sizes[0]) + " images in '" +
              images_path + "', " + std::to_string(labels.sizes[0]) + " labels in '" + labels_path +
              "'; give the two files of one set");
  require(images.sizes[1] > 0 && images.sizes[2] > 0,
          "IDX file '" + images_path + "' holds images without pixels");
  for (std::size_t i = 0; i < labels.bytes.size(); ++i)
    require(labels.bytes[i] < classes,
            "IDX file '" + labels_path + "': label " + std::to_string(i) + " is " +
                std::to_string(labels.bytes[i]) + ", expected below " + std::to_string(classes));
  return {images.sizes[1], images.sizes[2], std::move(images.bytes), std::move(labels.bytes)};
}

GreyImages load_mnist(const std::string& folder, bool train) {
  require(std::filesystem::is_directory(folder),
          "folder '" + folder + "' for MNIST's files does not exist");
  const std::string set = folder + (train ? "/train-" : "/t10k-");
  const auto file = [&](const std::string& what, const std::string& kind) {
    const std::string dotted = set + what + "." + kind;
    return std::filesystem::exists(dotted) ? dotted : set + what + "-" + kind;
  };
  return load_idx_images(file("images", "idx3-ubyte"), file("labels", "idx1-ubyte"));
}

}  // namespace ringsmith
