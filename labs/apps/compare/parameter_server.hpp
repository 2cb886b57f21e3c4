// A parameter server: asynchronous data parallelism, to be compared with DDP.
//
//   server (rank 0)   w0 ------ w1 ------ w2 --------- w3        each push is an update at once
//                     |  \      ^ |       ^            ^
//   rank 1            |   '-g(w0)-'-> w1 -+- g(w1) ----'         staleness 1: w2 came in between
//   rank 2            '--------- g(w0) ---'-> w2                 staleness 1: w1 came in between
//
// A rank pushes its gradients and gets the parameters back as they are then. It waits for the
// server, never for another rank. The price: a gradient is applied to other parameters than those
// it was computed from. Its staleness is the number of updates in between; with W equally fast
// ranks that is W - 1. And all gradients and parameters go through one rank.
//
// Dean et al., "Large scale distributed deep networks" (DistBelief), NIPS 2012; Hogwild!, 2011.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"
#include "runtime/optim/optimizer.hpp"

namespace ringsmith::apps {

class ParameterServer {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

  // Collective. All ranks get rank 0's parameters, which from now on are views into one piece of
  // memory, as their gradients will be; rank 0 answers the others from threads of its own. budget:
  // updates that the server accepts from all ranks together. f32 only (UsageError). Group and
  // model must outlive it.
  ParameterServer(comm::ProcessGroup& group, Module& model, const MakeOptimizer& make_optimizer,
                  std::int64_t budget);
  ~ParameterServer();  // joins the threads, whose waits have the group's deadline
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Pushes this rank's gradients (zeros where there is none), has them applied, pulls the
  // parameters and makes .grad undefined. False, and nothing was applied, when the budget was used
  // up before: then do not call it again.
  bool push_and_pull();

  // Collective. Until all ranks have been told that the budget is used up; throws what went wrong
  // in a thread of the server.
  void finish();

  // Of this rank's pushes, in their order.
  [[nodiscard]] const std::vector<std::int64_t>& staleness() const { return staleness_; }
  // On rank 0: what the server sent and received, and the time that it spent on updates.
  [[nodiscard]] double bytes() const { return static_cast<double>(bytes_); }
  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }

 private:
  struct Answer {
    std::int64_t version;  // of the parameters, 0 at the start
    bool accepted;
  };
  // Under the lock: gradients, which were computed from `version`, into the parameters; the
  // parameters into `parameters`.
  Answer update(const Tensor& gradients, const Tensor& parameters);
  void serve(comm::ProcessGroup& worker);
  Answer ask_server();

  comm::ProcessGroup& group_;
  std::vector<std::shared_ptr<comm::ProcessGroup>> pairs_;  // [rank]: rank 0 and that one
  Tensor parameters_, gradients_;                           // of this rank, flat
  std::vector<Tensor> leaves_;                              // the model's own
  std::int64_t version_ = 0;                                // that this rank pulled last
  std::vector<std::int64_t> staleness_;

  // ---- on rank 0 ----
  std::mutex mutex_;
  Tensor served_;  // the parameters that everybody pulls; rank 0 trains on a copy, as all do
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t budget_, updates_ = 0, bytes_ = 0;
  double busy_seconds_ = 0;
  std::vector<std::thread> threads_;
  std::vector<std::exception_ptr> errors_;
};

}  // namespace ringsmith::apps
