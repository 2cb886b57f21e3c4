// Running the graph backwards.
//
// One thread, the caller's. First the edges into every reachable node are counted; a node is ready
// when that many gradients have arrived. The order is a function of the graph alone:
//
//   1. An AccumulateGrad runs at once when it becomes ready; those that one node makes ready run
//      in the order of that node's edges. So a function decides the ready order of its parameters
//      by the order in which it lists its inputs: linear lists the bias before the weight, and so
//      it is ready first, as in PyTorch, where the weight passes through a transpose.
//   2. Of the other ready nodes, the one created last runs first.
//
// Gradients that meet at one input are added in the order of their arrival.
//
// On GPUs a node runs on the stream its forward ran on, and waits for the streams that its
// gradients come from; the host waits for none of it. When backward() returns, the caller's current
// streams go on after all of it, and so may the caller.
#pragma once

#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

// gradients[i] belongs to roots[i]; undefined means 1, for a root of one element. Without
// retain_graph saved tensors are freed on the way, and a second backward through any of these nodes
// is an Error. Runs without recording a graph; may be called from several threads on graphs that
// share no leaf. UsageError if a root does not require a gradient or a gradient does not fit.
void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {},
              bool retain_graph = false);

namespace autograd {
// How many more gradients `node` waits for in the backward that runs on this thread, -1 if none is
// running or the node has received some already.
[[nodiscard]] int sole_pending(const Node* node);
}  // namespace autograd

}  // namespace ringsmith
