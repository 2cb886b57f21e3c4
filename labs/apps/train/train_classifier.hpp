// What train_mlp and train_images share: the training of a network that tells images apart, with
// SGD, and the share of test images that it gets right.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "labs/apps/train/options.hpp"
#include "labs/apps/train/run_checkpoints.hpp"
#include "runtime/data/images.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith::apps {

struct ImageSets {
  ImageDataset train, test;
  std::string origin;  // for people
};

struct Classifier {
  std::string program;  // "train_mlp"
  std::string network;  // "mlp", for people and in the model's file
  std::int64_t default_steps = 0;
  double momentum = 0.9, weight_decay = 0;  // of SGD
  int workers = 0;                          // threads that prepare batches ahead
  // Called once on every rank; a UsageError of any stops them all. Parameters may be drawn from the
  // default generator, which then has the run's seed.
  std::function<ImageSets()> load;
  std::function<std::unique_ptr<Module>(const Images& train)> make_model;
  comm::Settings fixed;  // the program's own, for Trained
  std::string weights;   // file that make_model reads; empty: none
};

// Collective: the whole run. The program's exit code.
int train_classifier(const TrainOptions& common, const Classifier& classifier);

}  // namespace ringsmith::apps
