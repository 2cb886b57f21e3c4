#include "runtime/data/images.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

constexpr std::size_t kBytes = 256;

// Mixes three numbers into one, with the mixing function of SplitMix64: every bit of the result
// depends on every bit of the inputs (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014).
std::uint64_t mix(std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  std::uint64_t z = seed;
  for (const std::int64_t next : {epoch, index}) {
    z += 0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(next) + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
  }
  return z;
}

}  // namespace

PixelStatistics statistics_of(const Images& images) {
  require(!images.pixels.empty(), "no image to take the mean of");
  PixelStatistics out;
  const std::size_t area = static_cast<std::size_t>(images.height * images.width),
                    channels = static_cast<std::size_t>(images.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    std::vector<std::int64_t> counts(kBytes);  // exact, whatever the order of the pixels
    for (std::size_t i = c * area; i < images.pixels.size(); i += channels * area)
      for (std::size_t p = i; p < i + area; ++p) ++counts[images.pixels[p]];
    double n = 0, sum = 0, squares = 0;
    for (std::size_t v = 0; v < kBytes; ++v) {
      const auto times = static_cast<double>(counts[v]), value = static_cast<double>(v) / 255;
      n += times;
      sum += times * value;
      squares += times * value * value;
    }
    const double mean = sum / n, variance = squares / n - mean * mean;
    out.mean.push_back(static_cast<float>(mean));
    out.stddev.push_back(variance > 1e-9 ? static_cast<float>(std::sqrt(variance)) : 1.0F);
  }
  return out;
}

ImageDataset::ImageDataset(Images images, int classes, const PixelStatistics& statistics,
                           Augmentation augmentation)
    : images_(std::move(images)), augmentation_(augmentation) {
  require(images_.height > 0 && images_.width > 0 && images_.channels > 0,
          "images need at least one pixel, got " + std::to_string(images_.height) + " x " +
              std::to_string(images_.width));
  const auto area = static_cast<std::size_t>(images_.channels * images_.height * images_.width);
  require(images_.pixels.size() == images_.labels.size() * area,
          std::to_string(images_.pixels.size()) + " pixels are not " +
              std::to_string(images_.labels.size()) + " images of " + std::to_string(area));
  for (std::size_t i = 0; i < images_.labels.size(); ++i)
    require(images_.labels[i] < classes,
            "label " + std::to_string(i) + " is " + std::to_string(images_.labels[i]) +
                ", but labels must be below " + std::to_string(classes));
  const auto channels = static_cast<std::size_t>(images_.channels);
  require(statistics.mean.size() == channels && statistics.stddev.size() == channels,
          "mean and deviation must be given for each of " + std::to_string(channels) + " channels");
  require(augmentation_.pad >= 0, "the pad around images must not be negative");
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t v = 0; v < kBytes; ++v)
      values_.push_back((static_cast<float>(v) / 255.0F - statistics.mean[c]) /
                        statistics.stddev[c]);
}

ImageDataset::ImageDataset(GreyImages images, int classes, float mean, float stddev)
    : ImageDataset(std::move(images), classes, PixelStatistics{{mean}, {stddev}}) {}

ImageDataset::Crop ImageDataset::placement_of(std::int64_t index, std::int64_t epoch) const {
  const std::uint64_t bits = mix(augmentation_.seed, epoch, index);
  const auto places = static_cast<std::uint64_t>(2 * augmentation_.pad + 1);
  const auto place = [&](std::uint64_t some) {
    return static_cast<std::int64_t>(some % places) - augmentation_.pad;
  };
  return {place(bits & 0xffffff), place(bits >> 24 & 0xffffff),
          augmentation_.flip && (bits >> 63) != 0};
}

template <class PlacementOf>
Batch ImageDataset::make_batch(std::span<const std::int64_t> indices,
                               const PlacementOf& placement) const {
  const auto n = static_cast<std::int64_t>(indices.size());
  const std::int64_t height = images_.height, width = images_.width;
  Batch batch{Tensor::empty({n, images_.channels, height, width}),
              Tensor::empty({n}, {DType::i64})};
  auto* out = batch.inputs.data<float>();
  auto* target = batch.targets.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    check_index(index);
    const Crop at = placement(index);
    const std::uint8_t* plane = images_.pixels.data() + index * images_.channels * height * width;
    // Columns [first, last) of the crop are inside the image.
    const std::int64_t first = std::clamp<std::int64_t>(-at.right, 0, width),
                       last = std::clamp<std::int64_t>(width - at.right, 0, width);
    for (std::int64_t c = 0; c < images_.channels; ++c, plane += height * width) {
      const float* value = values_.data() + c * static_cast<std::int64_t>(kBytes);
      for (std::int64_t y = 0; y < height; ++y, out += width) {
        const std::int64_t row = y + at.down;
        const bool inside = row >= 0 && row < height;
        std::fill_n(out, width, value[0]);
        if (inside)
          for (std::int64_t x = first; x < last; ++x)
            out[x] = value[plane[row * width + x + at.right]];
        if (at.flip) std::reverse(out, out + width);
      }
    }
    *target++ = images_.labels[static_cast<std::size_t>(index)];
  }
  return batch;
}

Batch ImageDataset::get(std::span<const std::int64_t> indices) const {
  return make_batch(indices, [](std::int64_t) { return Crop{}; });
}

Batch ImageDataset::get_in_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  return make_batch(indices, [&](std::int64_t index) { return placement_of(index, epoch); });
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

bool has_mnist(const std::string& folder) {
  return std::filesystem::exists(folder + "/train-images-idx3-ubyte") ||
         std::filesystem::exists(folder + "/train-images.idx3-ubyte");
}

namespace {

constexpr std::size_t kCifarImage = 3 * 32 * 32, kCifarRecord = 1 + kCifarImage;

void append_cifar10(const std::string& path, Images& images) {
  const std::vector<std::uint8_t> file = read_file(path, "CIFAR-10 file");
  require(!file.empty() && file.size() % kCifarRecord == 0,
          "CIFAR-10 file '" + path + "' has " + std::to_string(file.size()) +
              " bytes, not a multiple of the record size " + std::to_string(kCifarRecord) +
              "; unpack cifar-10-binary.tar.gz again");
  for (std::size_t at = 0; at < file.size(); at += kCifarRecord) {
    require(file[at] < 10, "CIFAR-10 file '" + path + "': label of record " +
                               std::to_string(at / kCifarRecord) + " is " +
                               std::to_string(file[at]) +
                               ", expected 0 to 9; give the binary version of CIFAR-10");
    images.labels.push_back(file[at]);
    const auto first = file.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    images.pixels.insert(images.pixels.end(), first,
                         first + static_cast<std::ptrdiff_t>(kCifarImage));
  }
}

}  // namespace

std::string find_cifar10(const std::string& folder) {
  for (const std::string& place : {folder, folder + "/cifar-10-batches-bin"})
    if (std::filesystem::exists(place + "/data_batch_1.bin")) return place;
  return {};
}

Images load_cifar10(const std::string& folder, bool train) {
  const std::string place = find_cifar10(folder);
  require(!place.empty(), "folder '" + folder + "' has no data_batch_1.bin; unpack " +
                              "cifar-10-binary.tar.gz there");
  Images images{32, 32, {}, {}, 3};
  if (!train) append_cifar10(place + "/test_batch.bin", images);
  for (int i = 1; train && i <= 5; ++i)
    append_cifar10(place + "/data_batch_" + std::to_string(i) + ".bin", images);
  return images;
}

}  // namespace ringsmith
