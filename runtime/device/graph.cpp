#include "runtime/device/graph.hpp"

#include <cuda_runtime.h>
#include <exception>
#include <string>

#include "runtime/device/capture.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

namespace {

const std::string kRefused = "the step cannot be captured: ";

// The stream's capture, until end() or the end of the scope. The capture must end even if the work
// has thrown or has invalidated it, because the stream could not be used otherwise.
class StreamCapture {
 public:
  explicit StreamCapture(const Stream& stream) : stream_(stream) {
    cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    capture::detail::active = true;
  }
  ~StreamCapture() {
    cudaGraph_t unused = nullptr;
    if (end(unused) != cudaSuccess) (void)cudaGetLastError();
    if (unused != nullptr) (void)cudaGraphDestroy(unused);
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  cudaError_t end(cudaGraph_t& graph) {
    if (!capture::detail::active) return cudaSuccess;
    capture::detail::active = false;
    return cudaStreamEndCapture(stream_.get(), &graph);
  }

 private:
  const Stream& stream_;
};

cudaGraph_t captured(const Stream& stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  StreamCapture capture(stream);
  try {
    work();
  } catch (const UsageError& e) {
    throw UsageError(kRefused + e.what());
  } catch (const CudaError& e) {
    throw CudaError(kRefused + e.what());
  }
  const cudaError_t code = capture.end(graph);
  if (code != cudaSuccess) detail::throw_cuda_error(code, kRefused + "cudaStreamEndCapture");
  return graph;
}

}  // namespace

DeviceGraph::DeviceGraph(Device device, const std::function<void()>& work)
    : stream_(Stream::current(device)), memory_(stream_) {
  require(!capture::active(), "a graph cannot be captured while the thread captures another one");
  require(!profile::enabled(),
          "a graph cannot be captured while the profiler is on: it measures each kernel with "
          "events that the host reads");
  const DeviceGuard guard(device);
  (void)findings::take_captured();  // of a capture that failed
  cudaGraph_t graph = nullptr;
  {
    const device_allocator::GraphMemory::Capture kept(memory_);
    graph = captured(stream_, work);
  }
  checks_ = findings::take_captured();
  const cudaError_t code = cudaGraphInstantiate(&exec_, graph, 0);
  (void)cudaGraphGetNodes(graph, nullptr, &nodes_);
  (void)cudaGraphDestroy(graph);
  if (code != cudaSuccess) detail::throw_cuda_error(code, kRefused + "cudaGraphInstantiate");
}

DeviceGraph::~DeviceGraph() {
  if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
}

void DeviceGraph::launch() {
  const Device device = stream_.device();
  require(Stream::current(device) == stream_,
          "a graph is launched on the stream of its capture, which must be the current stream");
  findings::look();
  const DeviceGuard guard(device);
  cuda_check(cudaGraphLaunch(exec_, stream_.get()));
  if (!checks_.empty()) findings::launched(checks_, stream_);
}

}  // namespace ringsmith
