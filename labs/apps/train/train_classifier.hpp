// The common part of train_mlp and train_images: trains an image classifier with SGD and measures
// its accuracy.
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
  std::string origin;  // for messages
};

struct Classifier {
  std::string program;  // "train_mlp"
  std::string network;  // "mlp", for messages and the model's file
  std::int64_t default_steps = 0;
  double momentum = 0.9, weight_decay = 0;  // of SGD
  int workers = 0;                          // threads that prefetch batches
  // The next two functions are called once on every rank. A UsageError on any rank stops all ranks.
  // make_model may draw parameters from the default generator, which has the run's seed.
  std::function<ImageSets()> load;
  std::function<std::unique_ptr<Module>(const Images& train)> make_model;
  comm::Settings fixed;  // the program's own settings, for Trained
  std::string weights;   // a file that make_model reads; empty: none
};

// Collective. Returns the program's exit code.
int train_classifier(const TrainOptions& common, const Classifier& classifier);

}  // namespace ringsmith::apps
