// Activation checkpointing: trades computation for memory.
//
// Intermediate results of forward take most of a training step's memory. checkpoint() runs a part
// of the model and keeps only its inputs. When backward reaches that part, it runs again, and its
// saved tensors are used and released immediately.
//
//   forward    x0 --[block 1]--> x1 --[block 2]--> x2 --[block 3]--> loss
//   kept       x0                x1                x2                   (inner tensors are not)
//   backward                                       x2 --[block 3 again]--> its saved tensors
//                                x1 --[block 2 again]--> ...                  used, and released
//
//   memory   with n blocks that save s bytes each, from inputs of b bytes:  n b + s  instead of n s
//   time     one more forward
//   bits     unchanged: the same kernels run on the same values, and dropout uses the same masks
//
// Nodes, edges and leaves are the same as without checkpointing; only the nodes' saved tensors are
// stored elsewhere (SavedTensorKeeper in node.hpp). Gradients therefore become ready in the same
// order, once per leaf, and DistributedDataParallel sees no difference. This is PyTorch's
// use_reentrant=False; its older form runs a second backward pass inside the first and fires the
// hooks of a shared parameter twice.
//
// The function must compute the same each time: it may draw only from the default generators and
// must not depend on mutable globals. Its side effects occur twice: a BatchNorm's running
// statistics advance by two steps, as in PyTorch.
//
// Chen et al., "Training deep nets with sublinear memory cost", 2016.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

// States whether the function draws random numbers, e.g. for dropout.
enum class Draws : bool { no, yes };

namespace detail {

[[nodiscard]] std::shared_ptr<SavedTensorKeeper> recompute_by(
    std::function<void(const std::vector<Tensor>&)> again, const std::vector<Tensor>& inputs,
    Draws draws);

}  // namespace detail

// Returns function(inputs...), of any type. The function is copied, so references in it must stay
// valid until backward. Backward throws Error if the second run saves a different number of tensors
// or tensors of different shapes. With Draws::yes, the second run starts from the state that the
// generators had before the first run. After the second run, the generators are restored to the
// state from before it, so no other thread may draw during the second run.
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
