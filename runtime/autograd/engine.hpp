// Runs the graph backwards.
//
// Everything runs on the caller's thread. First the edges into every reachable node are counted; a
// node is ready when that many gradients have arrived. The order depends only on the graph:
//
//   1. An AccumulateGrad runs immediately when it becomes ready; those that one node makes ready
//      run in the order of that node's edges. So a function determines the ready order of its
//      parameters by the order of its inputs: linear lists the bias before the weight, so the bias
//      is ready first, as in PyTorch, where the weight passes through a transpose.
//   2. Of the other ready nodes, the most recently created one runs first.
//
// Gradients of the same input are added in the order of their arrival.
//
// On GPUs a node runs on its forward's stream, and waits for the streams that produce its
// gradients; the host does not wait. When backward() returns, later work on the caller's current
// streams runs after all of it.
#pragma once

#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

// gradients[i] belongs to roots[i]; undefined means 1, for a root of one element. Without
// retain_graph saved tensors are freed along the way, and a second backward through any of these
// nodes throws Error. Records no graph; may be called concurrently on graphs that share no leaf.
// Throws UsageError if a root does not require a gradient or a gradient does not fit.
void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {},
              bool retain_graph = false);

namespace autograd {
// Number of gradients for which `node` waits in this thread's current backward, if none has arrived
// yet; -1 if one has, if that backward does not reach the node, or if no backward is running.
[[nodiscard]] int sole_pending(const Node* node);
}  // namespace autograd

}  // namespace ringsmith
