// Activation checkpointing: memory for computation.
//
// Backward needs what forward computed, and that is most of a training step's memory. checkpoint()
// runs a part of the model and keeps its inputs only; when backward gets there, the part is run
// again and what it saves is used up at once.
//
//   forward    x0 --[block 1]--> x1 --[block 2]--> x2 --[block 3]--> loss
//   kept       x0                x1                x2                        not: what is inside
//   backward                                       x2 --[block 3 again]--> its saved tensors
//                                x1 --[block 2 again]--> ...                  used, and released
//
//   memory   with n blocks that save s bytes each, from inputs of b bytes:  n b + s  instead of n s
//   time     one more forward
//   bits     the same: the same kernels on the same values, dropout with the same masks
//
// Nodes, edges and leaves are those of a forward without it; only their saved tensors are elsewhere
// (SavedTensorKeeper in node.hpp). So gradients become ready in the same order, each leaf once, and
// DistributedDataParallel sees no difference. (PyTorch's use_reentrant=False; its older form runs a
// backward inside of backward, and fires the hooks of a shared parameter twice.)
//
// The function must do the same each time: no drawing of its own other than from the default
// generators, no global that changes. A state that it writes is written twice: the running
// statistics of a BatchNorm inside move two steps, as in PyTorch.
//
// Chen et al., "Training deep nets with sublinear memory cost", 2016.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

// Whether the function draws from the default generator or its device's counters: dropout.
enum class Draws : bool { no, yes };

namespace detail {

// For a function that saves its tensors with this keeper, `again` being the same function.
[[nodiscard]] std::shared_ptr<SavedTensorKeeper> recompute_by(
    std::function<void(const std::vector<Tensor>&)> again, const std::vector<Tensor>& inputs,
    Draws draws);

}  // namespace detail

// function(inputs...), of any result. Copied: what it refers to must live until backward. Error
// from backward if the function then saves other tensors than it did now. With Draws::yes the
// generators are moved back for the second run, and on again: not while another thread draws.
template <Draws draws = Draws::yes, class Function, class... Tensors>
auto checkpoint(Function function, const Tensors&... inputs) {
  if (!grad_enabled()) return function(inputs...);
  const KeeperScope scope(detail::recompute_by(
      [function](const std::vector<Tensor>& x) mutable {
        [&]<std::size_t... i>(std::index_sequence<i...>) { (void)function(x[i]...); }
        (std::index_sequence_for<Tensors...>{});
      },
      {inputs...}, draws));
  return function(inputs...);
}

}  // namespace ringsmith
