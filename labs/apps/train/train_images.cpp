// train_images: trains an image classifier, a residual or a small convolutional network.
//
// The images come from the files of CIFAR-10 or MNIST, or are synthetic.
#include <fmt/format.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/train_classifier.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/nn/resnet.hpp"

namespace ringsmith::apps {
namespace {

constexpr int kClasses = 10;
constexpr std::int64_t kDefaultSteps = 200;
constexpr std::int64_t kWidth = 64;             // torchvision's
constexpr std::int64_t kPad = 4;                // pixels of black border added before cropping
constexpr std::int64_t kSmallImage = 64;        // up to this size a ResNet has a small stem
constexpr std::uint64_t kCropSeed = 0x63726f7;  // keeps crops independent of the sample order

struct ImageOptions {
  TrainOptions common;
  std::string model = "small_cnn";
  std::int64_t width = kWidth;
  std::string stem = "auto";
  std::string weights;
  std::int64_t draw = 5'000;
  std::string augment = "auto";
  double momentum = 0.9;
  double weight_decay = 5e-4;
  int workers = 1;
};

bool read_options(ImageOptions& o, int argc, char** argv) {
  o.common.batch = 32;
  o.common.lr = 0.01;
  CommandLine app("Trains a convolutional network on images, data-parallel over all ranks.",
                  "train_images");
  app.group("Data");
  app.add_option("--data", o.common.data,
                 "folder with CIFAR-10's binary files (data_batch_1.bin, ...) or MNIST's "
                 "(train-images-idx3-ubyte, ...) [coloured shapes, drawn]");
  app.add_option("--draw", o.draw, "shapes to draw when no files are given")->check(whole(1));
  app.add_option("--augment", o.augment,
                 "random changes of training images: none; crop, after padding with 4 black "
                 "pixels; crop-flip, which also mirrors; auto: crop-flip, but none for MNIST")
      ->check(one_of({"auto", "none", "crop", "crop-flip"}));
  app.add_option("--workers", o.workers, "threads that prepare batches ahead")->check(whole(0, 64));
  app.group("Model");
  app.add_option("--model", o.model, "the network")
      ->check(one_of({"small_cnn", "resnet18", "resnet34", "resnet50"}));
  app.add_option("--width", o.width, "ResNet: channels of its stem; torchvision's have 64")
      ->check(whole(1));
  app.add_option("--stem", o.stem,
                 "ResNet: large, 7x7 kernels and max-pooling, which divide the image's size by 4; "
                 "small, 3x3 kernels; auto: small for images of up to 64 pixels")
      ->check(one_of({"auto", "small", "large"}));
  app.add_option("--weights", o.weights,
                 "safetensors file of initial weights, with torchvision's names")
      ->default_text("");
  app.group("Training");
  app.add_option("--momentum", o.momentum, "momentum of SGD")->check(real(0, 1));
  app.add_option("--weight-decay", o.weight_decay, "weight decay of SGD")->check(real(0, 1e6));
  add_train_options(app, o.common, std::to_string(kDefaultSteps));
  return app.parse(argc, argv);
}

// flips: true if an image's mirror image is of the same class.
Augmentation augmentation_of(const ImageOptions& o, bool flips) {
  const bool automatic = o.augment == "auto";
  const bool flip = o.augment == "crop-flip" || (automatic && flips);
  return {.pad = flip || o.augment == "crop" ? kPad : 0,
          .flip = flip,
          .seed = o.common.seed ^ kCropSeed};
}

ImageSets load(const ImageOptions& o) {
  const auto sets = [&](Images train, Images test, bool flips, const std::string& origin) {
    const PixelStatistics statistics = statistics_of(train);
    return ImageSets{
        ImageDataset(std::move(train), kClasses, statistics, augmentation_of(o, flips)),
        ImageDataset(std::move(test), kClasses, statistics), origin};
  };
  const std::string& folder = o.common.data;
  // The seeds are fixed, so a different --seed trains differently on the same shapes.
  if (folder.empty())
    return sets(draw_shapes(o.draw, 1), draw_shapes(o.draw / 10 + 1, 2), true, "drawn shapes");
  if (!find_cifar10(folder).empty())
    return sets(load_cifar10(folder, true), load_cifar10(folder, false), true, folder);
  require(has_mnist(folder), fmt::format("folder '{}' has neither CIFAR-10's data_batch_1.bin nor "
                                         "MNIST's train-images-idx3-ubyte; give the folder into "
                                         "which one of them was unpacked",
                                         folder));
  return sets(load_mnist(folder, true), load_mnist(folder, false), false, folder);
}

std::unique_ptr<Module> make_model(const ImageOptions& o, const Images& images) {
  std::unique_ptr<Module> model;
  if (o.model == "small_cnn") {
    require(o.width == kWidth && o.stem == "auto",
            "--width and --stem are for a ResNet; add --model resnet18");
    model = std::make_unique<SmallCNN>(images.channels, images.height, images.width, kClasses);
  } else {
    const bool small = o.stem == "small" ||
                       (o.stem == "auto" && std::max(images.height, images.width) <= kSmallImage);
    model = std::make_unique<ResNet>(ResNetOptions{.depth = std::stoi(o.model.substr(6)),
                                                   .classes = kClasses,
                                                   .channels = images.channels,
                                                   .width = o.width,
                                                   .small_stem = small});
  }
  if (o.weights.empty()) return model;
  const StateDict weights = load_safetensors(o.weights).tensors;
  try {
    model->load_state_dict(weights);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--weights '{}' do not fit --model {} and these images: {}",
                                 o.weights, o.model, e.what()));
  }
  return model;
}

int train_images(int argc, char** argv) {
  ImageOptions o;
  if (!read_options(o, argc, argv)) return 0;
  return train_classifier(
      o.common, {.program = "train_images",
                 .network = o.model,
                 .default_steps = kDefaultSteps,
                 .momentum = o.momentum,
                 .weight_decay = o.weight_decay,
                 .workers = o.workers,
                 .load = [&] { return load(o); },
                 .make_model = [&](const Images& images) { return make_model(o, images); },
                 .fixed = {{"--model", o.model}},
                 .weights = o.weights});
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_images",
                                      [&] { return ringsmith::apps::train_images(argc, argv); });
}
