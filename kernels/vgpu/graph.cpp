#include "kernels/vgpu/api/graph.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/api/foreign_graph.hpp"
#include "kernels/vgpu/api/foreign_launch.hpp"
#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/counters.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

struct CUgraph_st {
  std::shared_ptr<vgpu::Graph> nodes;
  std::vector<cudaGraphNode_t> handles;  // of nodes that calls have made
};
struct CUgraphExec_st {
  std::shared_ptr<vgpu::Graph> nodes;  // a copy
  std::vector<cudaGraphNode_t> handles;
  std::uint64_t launches = 0;
};
// The address of a handle is never used again.
struct CUgraphNode_st {};

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

std::shared_ptr<Graph> copy_of(const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  copy->origin = graph.origin;
  copy->joined = graph.joined;
  copy->nodes = graph.nodes;
  copy->ended = true;
  return copy;
}

// A seeded order of the nodes in which each follows the nodes that it must.
std::vector<std::size_t> order_of(const std::vector<Graph::Node>& nodes, Random& random) {
  std::vector<std::vector<std::size_t>> before(nodes.size());
  std::vector<std::size_t> missing(nodes.size()), ready, order;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const std::size_t a : nodes[i].after) before[a].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const auto chosen = static_cast<std::size_t>(random.below(ready.size()));
    std::swap(ready[chosen], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const std::size_t next : before[node])
      if (--missing[next] == 0) ready.push_back(next);
  }
  return order;
}

using Issue = std::function<cudaError_t(cudaStream_t)>;

// Appends a node, which follows the nodes in `after`.
cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                     std::size_t count, const char* call, const char* name, Issue issue) {
  const Quiet quiet;
  *node = nullptr;
  if (const auto e = check(graph, call)) return e;
  Graph::Node made{name, {}, std::move(issue), {}};
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = std::find(graph->handles.begin(), graph->handles.end(), after[i]);
    if (found == graph->handles.end() || *found == nullptr)
      return fail(cudaErrorInvalidValue, std::string(call) + ": dependency " + std::to_string(i) +
                                             " is not a node of the graph");
    made.after.push_back(static_cast<std::size_t>(found - graph->handles.begin()));
  }
  std::sort(made.after.begin(), made.after.end());
  made.after.erase(std::unique(made.after.begin(), made.after.end()), made.after.end());
  graph->handles.resize(graph->nodes->nodes.size());  // captured nodes have no handles
  graph->nodes->nodes.push_back(std::move(made));
  graph->handles.push_back(*node = new CUgraphNode_st);
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
  if (const Queue* origin = queue->capture_origin(); origin != nullptr && origin != queue)
    return fail(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture: " + queue->name() +
                                                     " has joined the capture of " +
                                                     origin->name() + ", which must end it");
  auto [captured, joined] = queue->end_capture();
  if (captured == nullptr)
    return fail(cudaErrorStreamCaptureUnmatched,
                "cudaStreamEndCapture: " + queue->name() + " is not being captured");
  if (error != cudaSuccess) return error;
  if (!joined)
    return fail(cudaErrorStreamCaptureUnjoined,
                "cudaStreamEndCapture: a stream that joined the capture has work for which " +
                    queue->name() + " does not wait (cudaStreamWaitEvent)");
  *graph = vgpu::living<CUgraph_st>().add(
      std::make_unique<CUgraph_st>(CUgraph_st{std::move(captured), {}}));
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
  *exec = vgpu::living<CUgraphExec_st>().add(std::make_unique<CUgraphExec_st>(
      CUgraphExec_st{vgpu::copy_of(*graph->nodes), graph->handles}));
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const Quiet quiet;
  if (const auto e = vgpu::check(graph, "cudaGraphGetNodes")) return e;
  graph->handles.resize(graph->nodes->nodes.size());
  if (nodes != nullptr)
    for (std::size_t i = 0; i < *count && i < graph->handles.size(); ++i) {
      if (graph->handles[i] == nullptr) graph->handles[i] = new CUgraphNode_st;
      nodes[i] = graph->handles[i];
    }
  *count = graph->nodes->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaGraphLaunch");
  if (queue == nullptr) return cudaPeekAtLastError();
  std::vector<vgpu::Graph::Node> nodes;
  {
    const Quiet quiet;
    if (const auto e = vgpu::check(exec, "cudaGraphLaunch")) return e;
    const vgpu::Graph& graph = *exec->nodes;
    if (graph.origin != nullptr && &graph.origin->device() != &queue->device())
      return fail(cudaErrorInvalidValue, "cudaGraphLaunch: the graph was captured on " +
                                             graph.origin->name() + ", the stream is " +
                                             queue->name());
    vgpu::Random random(0x67726170'68 + exec->launches++);
    for (const std::size_t i : vgpu::order_of(graph.nodes, random)) nodes.push_back(graph.nodes[i]);
  }
  ++vgpu::call_counters().graphs;
  const int before = vgpu::Device::current().index();
  vgpu::Device::set_current(queue->device().index());
  cudaError_t error = cudaSuccess;
  for (const vgpu::Graph::Node& node : nodes) {
    if (node.run)
      queue->add(node.name, node.run);
    else if (node.issue && error == cudaSuccess)
      error = node.issue(stream);
  }
  vgpu::Device::set_current(before);
  const Quiet quiet;
  nodes.clear();
  return error;
}

// ---- graphs that are built node by node ----

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  const Quiet quiet;
  *graph = nullptr;
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaGraphCreate: flags must be 0");
  *graph = vgpu::living<CUgraph_st>().add(
      std::make_unique<CUgraph_st>(CUgraph_st{std::make_shared<vgpu::Graph>(), {}}));
  return cudaSuccess;
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  const Quiet quiet;
  *clone = nullptr;
  if (const auto e = vgpu::check(graph, "cudaGraphClone")) return e;
  *clone = vgpu::living<CUgraph_st>().add(
      std::make_unique<CUgraph_st>(CUgraph_st{vgpu::copy_of(*graph->nodes), {}}));
  return cudaSuccess;
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* after, std::size_t count) {
  return vgpu::add_node(node, graph, after, count, "cudaGraphAddEmptyNode", "nothing", {});
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* after, std::size_t count, void* to,
                                     const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return vgpu::add_node(
      node, graph, after, count, "cudaGraphAddMemcpyNode1D", "copy",
      [=](cudaStream_t stream) { return cudaMemcpyAsync(to, from, bytes, kind, stream); });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, std::size_t count,
                                   const cudaMemcpy3DParms* copy) {
  return vgpu::add_node(
      node, graph, after, count, "cudaGraphAddMemcpyNode", "copy",
      [copy = *copy](cudaStream_t stream) { return cudaMemcpy3DAsync(&copy, stream); });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, std::size_t count,
                                   const cudaMemsetParams* fill) {
  const unsigned value = fill->value, size = fill->elementSize;
  // Fills of bytes only: every byte of an element must be the same.
  const bool bytes = size == 1 || (size == 2 && (value & 0xffU) == (value >> 8 & 0xffU)) ||
                     (size == 4 && value == (value & 0xffU) * 0x01010101U);
  if (!bytes)
    return fail(cudaErrorNotSupported,
                "cudaGraphAddMemsetNode: only elements whose bytes are all the same");
  return vgpu::add_node(
      node, graph, after, count, "cudaGraphAddMemsetNode", "fill",
      [fill = *fill, value](cudaStream_t stream) {
        const std::size_t width = fill.width * fill.elementSize;
        return fill.height <= 1
                   ? cudaMemsetAsync(fill.dst, static_cast<int>(value & 0xffU), width, stream)
                   : cudaMemset2DAsync(fill.dst, fill.pitch, static_cast<int>(value & 0xffU), width,
                                       fill.height, stream);
      });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* after, std::size_t count,
                                 const cudaHostNodeParams* call) {
  return vgpu::add_node(node, graph, after, count, "cudaGraphAddHostNode", "host function",
                        [call = *call](cudaStream_t stream) {
                          return cudaLaunchHostFunc(stream, call.fn, call.userData);
                        });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, std::size_t count) {
  const Quiet quiet;
  if (const auto e = vgpu::check(graph, "cudaGraphAddDependencies")) return e;
  const auto& handles = graph->handles;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = std::find(handles.begin(), handles.end(), from[i]);
    const auto second = std::find(handles.begin(), handles.end(), to[i]);
    if (first == handles.end() || second == handles.end())
      return fail(cudaErrorInvalidValue, "cudaGraphAddDependencies: not a node of the graph");
    graph->nodes->nodes[static_cast<std::size_t>(second - handles.begin())].after.push_back(
        static_cast<std::size_t>(first - handles.begin()));
  }
  return cudaSuccess;
}

namespace {
// The arguments are read now. Returns nothing after fail().
vgpu::Issue launch_of(const cudaKernelNodeParams& kernel, const char* caller) {
  const auto call = vgpu::announced_call(kernel.func, kernel.kernelParams, caller);
  if (!call) return {};
  return [call = *call, kernel](cudaStream_t stream) {
    return vgpu::launch(call, kernel.gridDim_, kernel.blockDim_, kernel.sharedMemBytes, stream);
  };
}
}  // namespace

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, std::size_t count,
                                   const cudaKernelNodeParams* kernel) {
  *node = nullptr;
  vgpu::Issue issue = launch_of(*kernel, "cudaGraphAddKernelNode");
  if (!issue) return cudaPeekAtLastError();
  return vgpu::add_node(node, graph, after, count, "cudaGraphAddKernelNode", "kernel",
                        std::move(issue));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* kernel) {
  vgpu::Issue issue = launch_of(*kernel, "cudaGraphExecKernelNodeSetParams");
  if (!issue) return cudaPeekAtLastError();
  const Quiet quiet;
  if (const auto e = vgpu::check(exec, "cudaGraphExecKernelNodeSetParams")) return e;
  const auto found = std::find(exec->handles.begin(), exec->handles.end(), node);
  if (node == nullptr || found == exec->handles.end())
    return fail(cudaErrorInvalidValue, "cudaGraphExecKernelNodeSetParams: not a node of the graph");
  exec->nodes->nodes[static_cast<std::size_t>(found - exec->handles.begin())].issue =
      std::move(issue);
  return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphNode_t* error,
                                cudaGraphExecUpdateResult* result) {
  const Quiet quiet;
  if (error != nullptr) *error = nullptr;
  *result = cudaGraphExecUpdateError;
  if (const auto e = vgpu::check(exec, "cudaGraphExecUpdate")) return e;
  if (const auto e = vgpu::check(graph, "cudaGraphExecUpdate")) return e;
  const auto &old = exec->nodes->nodes, &now = graph->nodes->nodes;
  bool same = old.size() == now.size();
  for (std::size_t i = 0; same && i < old.size(); ++i)
    same = old[i].after == now[i].after && std::strcmp(old[i].name, now[i].name) == 0;
  if (!same) {
    *result = cudaGraphExecUpdateErrorTopologyChanged;
    return fail(cudaErrorGraphExecUpdateFailure,
                "cudaGraphExecUpdate: the graphs have different nodes or dependencies");
  }
  exec->nodes = vgpu::copy_of(*graph->nodes);
  *result = cudaGraphExecUpdateSuccess;
  return cudaSuccess;
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t stream) {
  if (copy->srcArray != nullptr || copy->dstArray != nullptr)
    return fail(cudaErrorNotSupported, "cudaMemcpy3DAsync: there are no arrays (cudaArray_t)");
  const auto at = [](const cudaPitchedPtr& p, const cudaPos& pos, std::size_t slice) {
    return static_cast<std::byte*>(p.ptr) + ((pos.z + slice) * p.ysize + pos.y) * p.pitch + pos.x;
  };
  for (std::size_t slice = 0; slice < copy->extent.depth; ++slice)
    if (const auto e =
            cudaMemcpy2DAsync(at(copy->dstPtr, copy->dstPos, slice), copy->dstPtr.pitch,
                              at(copy->srcPtr, copy->srcPos, slice), copy->srcPtr.pitch,
                              copy->extent.width, copy->extent.height, copy->kind, stream))
      return e;
  return cudaSuccess;
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  if (const auto e = cudaMemcpy3DAsync(copy, nullptr)) return e;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return vgpu::destroy(exec, "cudaGraphExecDestroy");
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return vgpu::destroy(graph, "cudaGraphDestroy"); }
