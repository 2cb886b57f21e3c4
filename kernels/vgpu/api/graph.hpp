// CUDA graphs. A capture stores the operations that are added to the stream, and every launch adds
// all of them to a stream again.
//
//     cudaStreamBeginCapture   kernel, copy, kernel   cudaStreamEndCapture --> graph
//     cudaGraphInstantiate(graph) --> exec      cudaGraphLaunch(exec, stream), repeatedly
//
// While a stream is captured, calls that could wait for the captured work, or whose result depends
// on it, are refused and invalidate the capture, as with CUDA:
//
//   mode of the capture   refused: cudaMalloc, cudaFree, event and stream queries, ...
//   global                in all threads
//   thread-local          in the thread that began the capture
//   relaxed               in no thread, unless they concern the captured stream
//
// cudaThreadExchangeStreamCaptureMode changes the mode that a thread's own calls obey: a thread in
// relaxed mode may make these calls during any capture.
//
// A stream that waits for an event of a capture joins it, and must be waited for before the capture
// ends. A launch runs the operations one after the other, in a seeded order that keeps the waits.
// foreign_graph.hpp has graphs that are built node by node.
#pragma once

#include <cstddef>

#include "kernels/vgpu/api/runtime.hpp"

struct CUgraph_st;
struct CUgraphExec_st;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
struct CUgraphNode_st;
using cudaGraphNode_t = CUgraphNode_st*;

enum cudaStreamCaptureMode : int {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus : int {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
// Exchanges *mode and the calling thread's mode, which is global at first.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                        cudaGraphNode_t* /*error*/, char* /*log*/,
                                        std::size_t /*size*/) {
  return cudaGraphInstantiate(exec, graph, 0);
}
// With `nodes`, stores at most *count handles.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);  // queued launches still run
cudaError_t cudaGraphDestroy(cudaGraph_t graph);         // instantiated graphs remain
