// What data-parallel training costs on a cluster that is not here: the step of a model, with its
// buckets reduced while backward goes on, from the simulator's time for each bucket.
//
//     backward   |=========================================|
//     bucket 0          ready |--all-reduce--|
//     bucket 1                       ready   |---all-reduce---|
//     bucket 2                                         ready  |---all-reduce---|   exposed: what is
//                                                          |<----- exposed ---->   after backward
//
// Every GPU computes the same amount whatever their number (weak scaling); the buckets are those
// that DistributedDataParallel makes of the model's gradients, in the order in which they are
// ready.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/comm/analysis/simulator.hpp"

namespace ringsmith::apps {

struct TrainedModel {
  std::string name, source;
  std::vector<Elements> tensors;  // parameters, in the order of forward
  Bytes gradient;                 // of an element
  double flops = 0;               // of a step of one GPU, forward and backward
};

// Files: labs/scaling/*.json show every key. A name without a folder or an ending is looked for
// there. UsageError naming the file and what is wrong in it.
[[nodiscard]] comm::Topology load_topology(const std::string& name_or_file);
[[nodiscard]] TrainedModel load_model(const std::string& name_or_file);

// Bytes of each bucket, the first one ready first.
[[nodiscard]] std::vector<double> buckets_of(const TrainedModel& model, Bytes first_cap, Bytes cap);

struct PredictedStep {
  double compute = 0;     // forward and backward, seconds
  double reductions = 0;  // of all buckets, one after the other
  double exposed = 0;     // of these, after backward
  [[nodiscard]] double total() const { return compute + exposed; }
};

// A third of the time is forward. reduce(bytes): seconds of an all-reduce.
[[nodiscard]] PredictedStep predict_step(double compute, const std::vector<double>& buckets,
                                         const std::function<double(double bytes)>& reduce);

}  // namespace ringsmith::apps
