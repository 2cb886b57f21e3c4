// DataParallel: one model, one process, one thread per device. The older method, kept for
// comparison: its counters show why DistributedDataParallel (ddp.hpp) is built as it is.
//
//             root                                devices 1 ... N-1
//   forward   scatter the batch        ------->   rows of the batch
//             replicate the parameters ------->   parameters, again in every forward
//             forward of replica 0   ||           forward of replica i, one thread each
//             gather the outputs       <-------   outputs
//             loss of the whole batch
//   backward  scatter its gradient     ------->   gradient of the outputs
//             backward of replica 0  ||           backward of replica i, one thread each
//             add the gradients        <-------   gradients, in replica order
//             optimizer step
//
// All of this traffic passes through the root's links, and none of it overlaps with computation:
// parameters and gradients alone are 2 (N - 1) times the parameters' bytes per step.
//
// The replicas' gradients are added, not averaged, because the loss is one mean over the gathered
// batch. The result therefore equals the result of a single device, up to the order of the sums.
// That order is fixed, so two runs give the same bits.
//
//   GPT model(options);
//   model.to(Device::cuda(0));
//   DataParallel dp(model, [&] { return std::make_unique<GPT>(options); }, devices);
//   cross_entropy(dp.forward(x), y).backward();
//
// As in PyTorch, values that a forward writes to its module (running statistics) persist on replica
// 0 only. On the CPU, the dropout layers of all replicas draw from one generator, which is not
// thread-safe: use simulate_gil there.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

// The bytes that DataParallel sends over the link between the root and one other device. Per
// training step on N devices, with P bytes of parameters, the root's links carry (N - 1) P bytes
// out and as many back, in addition to buffers, inputs, outputs and their gradients. A rank of a
// ring all-reduce sends only 2 P (N - 1) / N.
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
  // Kernels on GPUs still overlap. Backward runs in parallel, because PyTorch's engine is not
  // Python code.
  bool simulate_gil = false;
};

class DataParallel {
 public:
  // `module` must be on devices[0], the root, and outlive this object; it keeps the parameters and
  // receives the gradients. another() makes a module of the same shape for a replica. The values of
  // that module do not matter, and the constructor restores the default generator's state. A device
  // may be listed more than once. Throws UsageError if a device does not exist or none is given, if
  // `module` is not on the root, or if the modules differ.
  DataParallel(Module& module, const std::function<std::unique_ptr<Module>()>& another,
               std::vector<Device> devices, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // x: rows along dimension 0; moved to the root first if necessary. The result is on the root.
  // With several devices, forward() and the backward through its result throw ReplicaError if a
  // replica throws. Throws UsageError if the module has left the root, x has no dimensions, or the
  // replicas' outputs do not fit together. Backward works only once per forward, even with
  // retain_graph. It works even after this object is destroyed. forward() and backward() of one
  // object must not overlap.
  Tensor forward(const Tensor& x);

  [[nodiscard]] const std::vector<Device>& devices() const;
  // The traffic of each replica since the last reset. Entry 0, the root itself, stays zero.
  [[nodiscard]] const std::vector<LinkTraffic>& traffic() const;
  [[nodiscard]] LinkTraffic root_traffic() const;  // sum over all links
  void reset_traffic();

  struct Job;  // state that forward and its backward share with this object
  struct Pass;

 private:
  void require_on_root() const;
  std::shared_ptr<Pass> replicate(const Tensor& x, bool recording);

  Module& module_;
  std::vector<std::unique_ptr<Module>> replicas_;
  std::vector<Tensor> no_parameters_, no_buffers_;  // bound to the replicas between forward passes
  DataParallelOptions options_;
  std::mutex interpreter_;
  std::shared_ptr<Job> job_;
};

}  // namespace ringsmith
