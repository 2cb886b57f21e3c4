// Runs the graph backwards.
//
// Everything runs on the caller's thread. First the edges into each reachable node are counted; a
// node is ready when that many gradients have arrived. The order depends only on the graph:
//
//   1. An AccumulateGrad runs as soon as it is ready. If one node makes several of them ready, they
//      run in the order of that node's edges. A function thus determines the ready order of its
//      parameters by the order of its inputs. For example, linear lists the bias before the weight,
//      so the bias is ready first, as in PyTorch, where the weight passes through a transpose.
//   2. Of the other ready nodes, the most recently created one runs first.
//
// Gradients of the same input are added in the order of their arrival.
//
// On GPUs a node runs on its forward's stream, which waits for the streams that produce its
// gradients; the host does not wait. When backward() returns, later work on the caller's current
// streams is ordered after all work of backward.
#pragma once

#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

// gradients[i] is the gradient of roots[i]. An undefined gradient means 1, and its root must have
// one element. Without retain_graph, saved tensors are freed along the way, and a second backward
// through any of these nodes throws Error. backward() records no graph. Several threads may call it
// concurrently for graphs that share no leaf. Throws UsageError if a root does not require a
// gradient or a gradient does not fit.
void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {},
              bool retain_graph = false);

namespace autograd {
// Number of gradients for which `node` waits in this thread's current backward. Returns -1 if a
// gradient has arrived, if this backward does not reach the node, or if no backward is running.
[[nodiscard]] int sole_pending(const Node* node);
// True if this thread's backward() may run again on its graph (retain_graph), so a node must not
// overwrite what it has saved. Also outside of backward().
[[nodiscard]] bool retains_graph();
}  // namespace autograd

}  // namespace ringsmith
