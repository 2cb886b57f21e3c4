#include "kernels/vgpu/api/graph.hpp"

#include <memory>
#include <string>

#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"

struct CUgraph_st {
  std::shared_ptr<const vgpu::Graph> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const vgpu::Graph> nodes;
};

namespace vgpu {

namespace {

// Never destroyed, like streams() and events().
template <class T>
Living<T>& living() {
  static auto* const all = new Living<T>;
  return *all;
}

template <class T>
cudaError_t check(const T* handle, const std::string& call) {
  if (const char* reason = living<T>().refuse(handle))
    return fail(cudaErrorInvalidValue, call + ": the graph " + reason);
  return cudaSuccess;
}

template <class T>
cudaError_t destroy(T* handle, const char* call) {
  const Quiet quiet;
  if (const auto e = check(handle, call)) return e;
  handle->nodes.reset();
  living<T>().bury(handle);
  return cudaSuccess;
}

}  // namespace

}  // namespace vgpu

using vgpu::fail;
using vgpu::Queue;
using vgpu::queue_of;
using vgpu::Quiet;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Queue* queue = queue_of(stream, "cudaStreamBeginCapture");
  if (queue == nullptr) return cudaPeekAtLastError();
  const Quiet quiet;
  if (queue->kind() == Queue::Kind::legacy)
    return fail(cudaErrorStreamCaptureUnsupported,
                "cudaStreamBeginCapture: the legacy default stream cannot be captured");
  if (!queue->begin_capture())
    return fail(cudaErrorInvalidValue,
                "cudaStreamBeginCapture: " + queue->name() + " is already being captured");
  vgpu::capture_begins(*queue, mode);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Queue* queue = queue_of(stream, "cudaStreamEndCapture");
  if (queue == nullptr) return cudaPeekAtLastError();
  const Quiet quiet;
  *graph = nullptr;
  const cudaError_t error = vgpu::capture_ends(*queue);
  if (error == cudaErrorStreamCaptureWrongThread) return error;
  std::unique_ptr<vgpu::Graph> captured = queue->end_capture();
  if (captured == nullptr)
    return fail(cudaErrorStreamCaptureUnmatched,
                "cudaStreamEndCapture: " + queue->name() + " is not being captured");
  if (error != cudaSuccess) return error;
  *graph =
      vgpu::living<CUgraph_st>().add(std::make_unique<CUgraph_st>(CUgraph_st{std::move(captured)}));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Queue* queue = queue_of(stream, "cudaStreamIsCapturing");
  if (queue == nullptr) return cudaPeekAtLastError();
  const Quiet quiet;
  *status = !queue->capturing()                ? cudaStreamCaptureStatusNone
            : vgpu::capture_is_invalid(*queue) ? cudaStreamCaptureStatusInvalidated
                                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  const Quiet quiet;
  *exec = nullptr;
  if (const auto e = vgpu::check(graph, "cudaGraphInstantiate")) return e;
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaGraphInstantiate: flags must be 0");
  *exec = vgpu::living<CUgraphExec_st>().add(
      std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->nodes}));
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const Quiet quiet;
  if (const auto e = vgpu::check(graph, "cudaGraphGetNodes")) return e;
  if (nodes != nullptr)
    return fail(cudaErrorInvalidValue,
                "cudaGraphGetNodes: nodes must be null; only their count is returned");
  *count = graph->nodes->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaGraphLaunch");
  if (queue == nullptr) return cudaPeekAtLastError();
  std::shared_ptr<const vgpu::Graph> graph;
  {
    const Quiet quiet;
    if (const auto e = vgpu::check(exec, "cudaGraphLaunch")) return e;
    graph = exec->nodes;
    if (&graph->origin->device() != &queue->device())
      return fail(cudaErrorInvalidValue, "cudaGraphLaunch: the graph was captured on " +
                                             graph->origin->name() + ", the stream is " +
                                             queue->name());
  }
  queue->launch(*graph);
  const Quiet quiet;
  graph.reset();
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return vgpu::destroy(exec, "cudaGraphExecDestroy");
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return vgpu::destroy(graph, "cudaGraphDestroy"); }
