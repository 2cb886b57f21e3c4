// Data-parallel training in its plainest form: after backward, one all-reduce per gradient, one
// after the other. With four parameters:
//
//   backward   g3 g2 g1 g0 |
//   network                | g0 | g1 | g2 | g3 |
//                          |----- exposed -----| optimizer
//
//   for (batch of this rank) {
//     optimizer.zero_grad();
//     loss(model.forward(x), y).backward();         // this rank's gradients
//     average_gradients(group, model.parameters());
//     optimizer.step();                             // the same update on every rank
//   }
//
// The ranks must start with equal parameters: all draw them from the same seed, or rank 0
// broadcasts its own (broadcast_coalesced.hpp). Equal averages and equal updates keep them equal.
//
// The training programs run it with --ddp plain. DistributedDataParallel (ddp.hpp) computes the
// same averages, but starts while backward still runs, and reduces many gradients together. It also
// reports missing gradients and ranks that are at different steps; here, both go unnoticed. On two
// ranks, the bits are equal. On more ranks they are equal if sums are exact, or if the algorithm
// (such as tree) adds all elements in one order.
#pragma once

#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// Collective, after backward(). Replaces .grad of each parameter with its average over the ranks.
// The parameters must be the same, in the same order, on every rank; frozen ones are skipped. A
// missing gradient counts as zeros, so that every rank makes the same calls; if no rank has the
// gradient, .grad becomes zeros. A gradient is averaged in place, or as a copy if it is not
// contiguous or the group is on another device.
inline void average_gradients(comm::ProcessGroup& group, const std::vector<Tensor>& parameters) {
  for (const Tensor& p : parameters) {
    if (!p.requires_grad()) continue;
    const Tensor own = p.grad().defined() ? p.grad() : zeros_like(p);
    const Tensor g = own.to(group.device()).contiguous();
    const Elements count(static_cast<std::size_t>(g.numel()));
    group.all_reduce(comm::Buffer(data_of(g), count, g.dtype()), comm::ReduceOp::avg);
    p.set_grad(g.to(p.device()));
  }
}

}  // namespace ringsmith
