// CUDA graphs: work that is captured once and then launched with a single call.
//
//   host     eager   [launch][launch][launch] ... hundreds of calls of the driver for each step
//            graph   [launch the graph]                         a single call for each step
//   device           [kernel][kernel][kernel] ... the same kernels, with the same arguments
//
// A capture calls the host code of the work once, and CUDA records the launches instead of running
// them. Every launch of the graph then repeats them with the arguments and addresses of the
// capture. The rules follow from this:
//
// - The graph keeps its memory (device_allocator::GraphMemory). No other request gets a block that
//   the captured work allocates or frees before the graph is destroyed.
// - Work that the host must see, or that differs in each step, cannot be captured: reading a
//   result, waiting, copying from the host, random numbers, collectives, the learning rate as an
//   argument. Such calls throw during a capture (capture::refuse), and the error names the call.
// - Checks of indices (findings.hpp) are kernels and belong to the graph. The host reads their
//   results after a launch, like those of other checks.
//
// No other thread may queue work on the stream during the capture, because CUDA would capture it.
#pragma once

#include <cstddef>
#include <functional>

#include "runtime/device/findings.hpp"
#include "runtime/device/graph_memory.hpp"
#include "runtime/device/stream.hpp"

struct CUgraphExec_st;

namespace ringsmith {

class DeviceGraph {
 public:
  // Captures what `work` queues on the thread's current stream of the device. Nothing runs. If the
  // work throws or cannot be captured, throws an error of the same kind that gives the reason; the
  // stream is usable again then.
  DeviceGraph(Device device, const std::function<void()>& work);
  ~DeviceGraph();  // a launch that is still queued or running completes
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Queues the captured work on the stream of the capture, which must be the thread's current one.
  // Throws errors that earlier checks have found (findings::look).
  void launch();

  [[nodiscard]] std::size_t nodes() const { return nodes_; }  // kernels, copies and fills
  [[nodiscard]] const device_allocator::GraphMemory& memory() const { return memory_; }

 private:
  Stream stream_;
  device_allocator::GraphMemory memory_;
  findings::Checks checks_;
  CUgraphExec_st* exec_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace ringsmith
