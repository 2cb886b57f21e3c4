// train_mlp: trains a multilayer perceptron to read digits.
//
// The images and labels come from IDX files (such as MNIST's), or are synthetic.
#include <fmt/format.h>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/train_classifier.hpp"
#include "runtime/data/images.hpp"
#include "runtime/nn/layers.hpp"

namespace ringsmith::apps {
namespace {

constexpr int kClasses = 10;
constexpr std::int64_t kDefaultSteps = 600;

struct MlpOptions {
  TrainOptions common;
  std::string images, labels, test_images, test_labels;
  std::int64_t draw = 20'000;
  std::int64_t hidden = 256;
  double momentum = 0.9;
  int workers = 0;
};

struct Digits {
  GreyImages train, test;
  std::string origin;
};

// Makes the last tenth the test set.
Digits split(GreyImages all) {
  const auto n = static_cast<std::int64_t>(all.labels.size());
  const std::int64_t test = n / 10, train = n - test, size = all.height * all.width;
  require(test > 0, fmt::format("{} images are too few to hold out a tenth for testing; give "
                                "--test-images and --test-labels",
                                n));
  Digits out;
  out.train = {all.height,
               all.width,
               {all.pixels.begin(), all.pixels.begin() + train * size},
               {all.labels.begin(), all.labels.begin() + train}};
  out.test = {all.height,
              all.width,
              {all.pixels.begin() + train * size, all.pixels.end()},
              {all.labels.begin() + train, all.labels.end()}};
  return out;
}

Digits load(const MlpOptions& o) {
  require(o.images.empty() == o.labels.empty(), "--images and --labels must be given together");
  require(o.test_images.empty() == o.test_labels.empty(),
          "--test-images and --test-labels must be given together");
  require(o.test_images.empty() || !o.images.empty(),
          "--test-images without --images: give the training images too");
  if (!o.common.data.empty()) {
    require(o.images.empty(), "give either --data or --images, not both");
    return {load_mnist(o.common.data, true), load_mnist(o.common.data, false), o.common.data};
  }
  if (!o.images.empty() && !o.test_images.empty())
    return {load_idx_images(o.images, o.labels, kClasses),
            load_idx_images(o.test_images, o.test_labels, kClasses), o.images};
  if (!o.images.empty()) {
    Digits out = split(load_idx_images(o.images, o.labels, kClasses));
    out.origin = o.images + ", last tenth for testing";
    return out;
  }
  // The seeds are fixed, so a different --seed trains differently on the same digits.
  return {draw_digits(o.draw, 1), draw_digits(o.draw / 10 + 1, 2), "drawn digits"};
}

int train_mlp(int argc, char** argv) {
  MlpOptions o;
  o.common.batch = 64;
  o.common.lr = 0.05;
  CommandLine app("Trains a multilayer perceptron to read digits, data-parallel over all ranks.",
                  "train_mlp");
  app.group("Data");
  app.add_option("--data", o.common.data,
                 "folder with MNIST's four files: train-images-idx3-ubyte, t10k-labels-..., ...");
  app.add_option("--images", o.images, "IDX file of training images (u8, n x h x w)");
  app.add_option("--labels", o.labels, "IDX file of the training labels (u8, n)");
  app.add_option("--test-images", o.test_images, "IDX file of test images [a tenth of --images]");
  app.add_option("--test-labels", o.test_labels, "IDX file of the test labels");
  app.add_option("--draw", o.draw, "digits to draw when no files are given")->check(whole(1));
  app.add_option("--workers", o.workers,
                 "threads that prepare batches ahead; 0 is enough for data in memory")
      ->check(whole(0, 64));
  app.group("Training");
  app.add_option("--hidden", o.hidden, "width of the two hidden layers")->check(whole(1));
  app.add_option("--momentum", o.momentum, "momentum of SGD")->check(real(0, 1));
  add_train_options(app, o.common, std::to_string(kDefaultSteps));
  if (!app.parse(argc, argv)) return 0;
  return train_classifier(o.common,
                          {.program = "train_mlp",
                           .network = "mlp",
                           .default_steps = kDefaultSteps,
                           .momentum = o.momentum,
                           .workers = o.workers,
                           .load =
                               [&] {
                                 Digits digits = load(o);
                                 return ImageSets{ImageDataset(std::move(digits.train), kClasses),
                                                  ImageDataset(std::move(digits.test), kClasses),
                                                  std::move(digits.origin)};
                               },
                           .make_model =
                               [&](const Images& images) {
                                 return std::make_unique<MLP>(std::vector<std::int64_t>{
                                     images.height * images.width, o.hidden, o.hidden, kClasses});
                               },
                           .fixed = {},
                           .weights = {}});
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_mlp",
                                      [&] { return ringsmith::apps::train_mlp(argc, argv); });
}
