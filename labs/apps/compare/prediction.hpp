// Predicts the step time of data-parallel training on a cluster that you do not have. Buckets are
// reduced during backward, and the simulator gives the time for each:
//
//     backward   |=========================================|
//     bucket 0          ready |--all-reduce--|
//     bucket 1                       ready   |---all-reduce---|
//     bucket 2                                         ready  |---all-reduce---|   exposed: time
//                                                          |<----- exposed ---->   after backward
//
// Weak scaling: every GPU computes the same amount. The buckets are the ones that
// DistributedDataParallel would form for the model, in the order in which they become ready.
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

// Load a JSON file; the files in labs/scaling are examples. A name with neither '/' nor '.' selects
// a file of labs/scaling. Throw UsageError naming the file and the error.
[[nodiscard]] comm::Topology load_topology(const std::string& name_or_file);
[[nodiscard]] TrainedModel load_model(const std::string& name_or_file);

[[nodiscard]] std::vector<double> buckets_of(const TrainedModel& model, Bytes first_cap, Bytes cap);

struct PredictedStep {
  double compute = 0;     // forward and backward, seconds
  double reductions = 0;  // seconds, sum over all buckets
  double exposed = 0;     // part of reductions after the end of backward
  [[nodiscard]] double total() const { return compute + exposed; }
};

// Forward takes a third of `compute`. reduce(bytes) returns the seconds of an all-reduce.
[[nodiscard]] PredictedStep predict_step(double compute, const std::vector<double>& buckets,
                                         const std::function<double(double bytes)>& reduce);

}  // namespace ringsmith::apps
