// DataParallel: one model, one process, one thread a device. The older way, kept for comparison: it
// shows by its counters why DistributedDataParallel (ddp.hpp) is built as it is.
//
//             root                                devices 1 ... N-1
//   forward   scatter the batch        ------->   rows of the batch
//             replicate the parameters ------->   parameters, anew in every forward
//             forward of replica 0   ||           forward of replica i, a thread each
//             gather the outputs       <-------   outputs
//             loss of the whole batch
//   backward  scatter its gradient     ------->   gradient of the outputs
//             backward of replica 0  ||           backward of replica i, a thread each
//             add the gradients        <-------   gradients, in the order of the replicas
//             optimizer step
//
// All of it goes through the root's links, twice (N - 1) parameters in every step, and nothing of
// it happens beside the computation. The root also holds the whole output, the loss and the
// optimizer.
//
// The gradients of the replicas are added, not averaged: the loss is one mean over the gathered
// batch. For the same reason the result is that of one device, up to the order of the sums; that
// order is fixed, so two runs give the same bits.
//
//   GPT model(options);
//   model.to(Device::cuda(0));
//   DataParallel dp(model, [&] { return std::make_unique<GPT>(options); }, devices);
//   cross_entropy(dp.forward(x), y).backward();
//
// As in PyTorch, what a forward writes to its module stays on replica 0 only (running statistics).
// Dropout on several replicas on the CPU draws from one generator, which is not thread-safe: use
// simulate_gil there.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

// What DataParallel sends over the link between the root and one other device.
//
// It is counted where the copies are made, whatever carries them; the root's own part crosses no
// link. Over a training step, with P bytes of parameters on N devices, the root's links carry
// (N - 1) P out and (N - 1) P back, beside inputs and outputs: it grows with every device, where a
// rank of a ring all-reduce sends 2 P (N - 1) / N, which does not.
struct LinkTraffic {
  // from the root
  Bytes parameters;
  Bytes buffers;
  Bytes inputs;
  Bytes output_gradients;
  // to the root
  Bytes outputs;
  Bytes gradients;  // of the parameters
  Bytes input_gradients;

  [[nodiscard]] Bytes from_root() const { return parameters + buffers + inputs + output_gradients; }
  [[nodiscard]] Bytes to_root() const { return outputs + gradients + input_gradients; }
  LinkTraffic& operator+=(const LinkTraffic& o) {
    parameters += o.parameters;
    buffers += o.buffers;
    inputs += o.inputs;
    output_gradients += o.output_gradients;
    outputs += o.outputs;
    gradients += o.gradients;
    input_gradients += o.input_gradients;
    return *this;
  }
};

struct DataParallelOptions {
  // Replicas run the host code of their forward one at a time, as under Python's interpreter lock.
  // Kernels on GPUs still overlap. Backward is not affected, as PyTorch's engine is none of Python.
  bool simulate_gil = false;
};

class DataParallel {
 public:
  // module must be on devices[0], the root, and outlive this object; it keeps the parameters, and
  // the gradients arrive in them. another() makes a module of the same shape for a replica, whose
  // values do not matter; it leaves the default generator as it was. A device may be named several
  // times. UsageError if there is no such device, or the modules differ.
  DataParallel(Module& module, const std::function<std::unique_ptr<Module>()>& another,
               std::vector<Device> devices, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // x: rows along dimension 0; moved to the root first if it is elsewhere. A batch of fewer rows
  // than devices leaves some idle. The result is on the root. ReplicaError, also from backward.
  // Backward works once for each forward, also with retain_graph. The object itself may be gone by
  // then; forward() and backward() of one object must not overlap.
  Tensor forward(const Tensor& x);

  [[nodiscard]] const std::vector<Device>& devices() const;
  // Between the root and each replica since the last reset. [0], the root itself, stays zero.
  [[nodiscard]] const std::vector<LinkTraffic>& traffic() const;
  [[nodiscard]] LinkTraffic root_traffic() const;  // of all links together
  void reset_traffic();

  struct Job;   // what forward and its backward share with this object
  struct Pass;  // one forward

 private:
  void require_on_root() const;
  std::shared_ptr<Pass> replicate(const Tensor& x, bool recording);

  Module& module_;
  std::vector<std::unique_ptr<Module>> replicas_;
  std::vector<Tensor> no_parameters_, no_buffers_;  // what replicas hold between forwards
  DataParallelOptions options_;
  std::mutex interpreter_;
  std::shared_ptr<Job> job_;
};

}  // namespace ringsmith
