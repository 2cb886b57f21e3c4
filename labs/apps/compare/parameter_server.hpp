// A parameter server: asynchronous data parallelism, for comparison with DDP.
//
//   server (rank 0)   w0 ------ w1 ------ w2 --------- w3        each push is an immediate update
//                     |  \      ^ |       ^            ^
//   rank 1            |   '-g(w0)-'-> w1 -+- g(w1) ----'         staleness 1: w2 was made meanwhile
//   rank 2            '--------- g(w0) ---'-> w2                 staleness 1: w1 was made meanwhile
//
// A rank pushes its gradients and receives the current parameters. It waits for the server, never
// for another rank. The price is that a gradient may be applied to newer parameters than it was
// computed from. The gradient's staleness is the number of updates in between; with W equally fast
// ranks it is W - 1. Moreover, all gradients and parameters pass through one rank.
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

  // Collective. Copies rank 0's parameters to all ranks. The parameters become views into one
  // block, and the gradients views into another. Rank 0 serves the other ranks on dedicated
  // threads. budget: number of updates that the server accepts, summed over all ranks. Throws
  // UsageError unless all parameters are f32. The group and the model must outlive this object.
  ParameterServer(comm::ProcessGroup& group, Module& model, const MakeOptimizer& make_optimizer,
                  std::int64_t budget);
  ~ParameterServer();  // joins the threads, whose waits have the group's deadline
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Pushes this rank's gradients (zeros where undefined), pulls the parameters after the update,
  // and makes .grad undefined. Returns false, without an update, if the budget was already used up.
  // It must not be called again after it has returned false.
  bool push_and_pull();

  // Collective. Blocks until all ranks know that the budget is used up. Rethrows an error of a
  // server thread.
  void finish();

  // Returns one value for each of this rank's accepted pushes, in order.
  [[nodiscard]] const std::vector<std::int64_t>& staleness() const { return staleness_; }
  // On rank 0: bytes of parameters and gradients exchanged with the other ranks, and seconds spent
  // on updates.
  [[nodiscard]] double bytes() const { return static_cast<double>(bytes_); }
  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }

 private:
  struct Answer {
    std::int64_t version;  // of the parameters; 0 at the start
    bool accepted;
  };
  // Applies the gradients, unless the budget is used up, and copies the current parameters into
  // `parameters`, both under the lock.
  Answer update(const Tensor& gradients, const Tensor& parameters);
  void serve(comm::ProcessGroup& worker);
  Answer ask_server();

  comm::ProcessGroup& group_;
  std::vector<std::shared_ptr<comm::ProcessGroup>> pairs_;  // [rank]: rank 0 and that rank
  Tensor parameters_, gradients_;                           // of this rank, flat
  std::vector<Tensor> leaves_;                              // the model's parameters
  std::int64_t version_ = 0;                                // of the last pulled parameters
  std::vector<std::int64_t> staleness_;

  // ---- on rank 0 ----
  std::mutex mutex_;
  Tensor served_;  // the parameters that all ranks pull; rank 0 trains on a copy, too
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t budget_, updates_ = 0, bytes_ = 0;
  double busy_seconds_ = 0;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::jthread> threads_;  // last: joined before the other members are destroyed
};

}  // namespace ringsmith::apps
