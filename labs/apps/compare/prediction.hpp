// Predicts the cost of data-parallel training on a cluster that is not available: the step of a
// model whose buckets are reduced during backward, with the simulator's time for each bucket.
//
//     backward   |=========================================|
//     bucket 0          ready |--all-reduce--|
//     bucket 1                       ready   |---all-reduce---|
//     bucket 2                                         ready  |---all-reduce---|   exposed: time
//                                                          |<----- exposed ---->   after backward
//
// Every GPU computes the same amount, regardless of the number of GPUs (weak scaling). The buckets
// are those that DistributedDataParallel builds for the model's gradients, in the order in which
// they become ready.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/analysis/simulator.hpp"
#include "runtime/base/units.hpp"

namespace ringsmith::apps {

struct TrainedModel {
  std::string name, source;
  std::vector<Elements> tensors;  // parameters, in the order of forward
  Bytes gradient;                 // size of one gradient element
  double flops = 0;               // per step and GPU, forward and backward
};

// Load a file; labs/scaling/*.json show every key. A name without a folder or an extension selects
// a file of labs/scaling. Throw UsageError naming the file and the error.
[[nodiscard]] comm::Topology load_topology(const std::string& name_or_file);
[[nodiscard]] TrainedModel load_model(const std::string& name_or_file);

// Returns the bytes of each bucket, in the order in which the buckets become ready.
[[nodiscard]] std::vector<double> buckets_of(const TrainedModel& model, Bytes first_cap, Bytes cap);

struct PredictedStep {
  double compute = 0;     // forward and backward, seconds
  double reductions = 0;  // sum over all buckets
  double exposed = 0;     // part of reductions after the end of backward
  [[nodiscard]] double total() const { return compute + exposed; }
};

// Predicts a step in which forward takes a third of `compute`. reduce(bytes) returns the seconds of
// an all-reduce.
[[nodiscard]] PredictedStep predict_step(double compute, const std::vector<double>& buckets,
                                         const std::function<double(double bytes)>& reduce);

}  // namespace ringsmith::apps
