// The interface between the parts of a trainer:
//
//     model      parameters()  on_gradient(p, hook)  on_backward_end(callback)
//     parameter  p->value, p->grad (flat, float)  p->requires_grad              p is a handle
//     group      rank()  world()  broadcast(data, root)  all_reduce(data) -> work      work.wait()
//
// kit::ToyModel and kit::Group are a model and a group for tests. Lab 04's MLP is a model, and in
// chapter 13 your ring becomes a group. Code that is written for these two concepts runs with all
// of them.
#pragma once

#include <concepts>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

namespace kit {

// A handle to a parameter of that model. Handles to the same parameter are equal.
template <class Model>
using ParameterOf =
    typename std::decay_t<decltype(std::declval<const Model&>().parameters())>::value_type;
template <class Group>
using WorkOf = decltype(std::declval<Group&>().all_reduce(std::declval<std::span<float>>()));

template <class Model>
concept HookedModel = requires(Model model, const Model& same, ParameterOf<Model> p,
                               std::function<void()> hook) {
  { p->value } -> std::convertible_to<std::vector<float>&>;
  { p->grad } -> std::convertible_to<std::vector<float>&>;
  { p->requires_grad } -> std::convertible_to<bool>;
  // Runs once in each backward that gives p a gradient, when p->grad is complete.
  model.on_gradient(p, hook);
  // Runs once at the end of each backward.
  model.on_backward_end(hook);
  requires std::equality_comparable<ParameterOf<Model>>;
};

template <class Group>
concept AsyncGroup = requires(Group group, std::span<float> data, WorkOf<Group> work) {
  { group.rank() } -> std::convertible_to<int>;
  { group.world() } -> std::convertible_to<int>;
  // group.all_reduce(data) only starts the operation. Until work.wait() has returned, the network
  // owns data.
  work.wait();
  requires std::copyable<WorkOf<Group>>;
  group.broadcast(data, 0);
};

}  // namespace kit
