// Lab 03: reverse-mode automatic differentiation, a tape.
//
// Every operation records its inputs. backward() follows this record from the result to the leaves
// and passes gradients down:
//
//     x ----> [mul] ----> y ----> [sum] ----> loss        forward: values, left to right
//     x <---- [mul] <---- y <---- [sum] <---- 1           backward: gradients, right to left
//
// A node may pass its gradient on only when it is complete: when every value that was computed from
// it, and on which the result depends, has contributed. Likewise, a leaf's hooks run once, as soon
// as its gradient is complete. In chapter 09 hooks send gradients over the network while backward()
// is still busy with the layers below.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab03 {

using Values = std::vector<double>;
struct Node;
using Var = std::shared_ptr<Node>;  // a handle: copies denote the same variable
using Hook = std::function<void(const Var& leaf)>;
// Returns the gradient of input number `input`, given the gradient of the result. A rule may hold
// numbers (lab 13's matrix product: its rows and columns), but no Var: it receives the inputs.
using Rule =
    std::function<Values(const std::vector<Var>& inputs, std::size_t input, const Values& grad)>;

// A value and its origin. A leaf has neither inputs nor a rule.
struct Node {
  Values value;
  bool needs_grad = false;
  std::vector<Var> inputs;
  Rule rule;
  std::optional<Values> grad;  // of a leaf; none until a backward() reaches it
  std::vector<Hook> hooks;     // of a leaf
  bool consumed = false;       // for task 5
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
};

// Given. Destroys the inputs without recursion, which would be too deep for a long graph.
inline Node::~Node() {
  std::vector<Var> dying = std::move(inputs);
  while (!dying.empty()) {
    const Var last = std::move(dying.back());
    dying.pop_back();
    if (last.use_count() > 1) continue;
    for (Var& input : last->inputs) dying.push_back(std::move(input));
    last->inputs.clear();
  }
}

// ---- given: leaves, and the driver's queries ----
inline Var leaf(Values value, bool needs_grad = true) {
  auto node = std::make_shared<Node>();
  node->value = std::move(value);
  node->needs_grad = needs_grad;
  return node;
}
inline const Values& value(const Var& v) { return v->value; }
inline bool needs_grad(const Var& v) { return v->needs_grad; }
inline const Values* grad(const Var& v) { return v->grad ? &*v->grad : nullptr; }  // null: none
inline void zero_grad(const Var& v) { v->grad.reset(); }                           // back to none
inline void on_grad(const Var& leaf, Hook hook) { leaf->hooks.push_back(std::move(hook)); }

// ---- given: how an operation is recorded, and one operation ----
// A value, its inputs and a rule suffice to add an operation, as the tests and lab 13 do.
inline Var record(Values value, std::vector<Var> inputs, Rule rule) {
  auto node = std::make_shared<Node>();
  node->value = std::move(value);
  for (const Var& input : inputs) node->needs_grad |= input->needs_grad;
  if (!node->needs_grad) return node;  // no gradient is needed, so no history is kept
  node->inputs = std::move(inputs);
  node->rule = std::move(rule);
  return node;
}

inline void same_length(const char* what, const Var& a, const Var& b) {
  if (a->value.size() != b->value.size())
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(a->value.size()) +
                                " and " + std::to_string(b->value.size()) + " elements");
}

inline Var add(const Var& a, const Var& b) {  // element by element
  same_length("add", a, b);
  Values y = a->value;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += b->value[i];
  return record(std::move(y), {a, b},
                [](const std::vector<Var>&, std::size_t, const Values& grad) { return grad; });
}

// ---- yours ----

// Task 1. y[i] = a[i] b[i]; unequal lengths are refused as in add. a and b may be the same
// variable.
inline Var mul(const Var& a, const Var& b) {
#ifdef SOLUTION
  same_length("mul", a, b);
  Values y = a->value;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] *= b->value[i];
  return record(std::move(y), {a, b},
                [](const std::vector<Var>& inputs, std::size_t input, const Values& grad) {
                  const Values& other = inputs[1 - input]->value;
                  Values out = grad;
                  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= other[i];
                  return out;
                });
#else
  (void)a, (void)b;
  kit::todo("task 1, mul");
#endif
}

// Task 1. Returns one element: the sum of all elements of a, 0 if there are none.
inline Var sum(const Var& a) {
#ifdef SOLUTION
  double total = 0;
  for (const double x : a->value) total += x;
  return record({total}, {a}, [](const std::vector<Var>& inputs, std::size_t, const Values& grad) {
    return Values(inputs[0]->value.size(), grad[0]);
  });
#else
  (void)a;
  kit::todo("task 1, sum");
#endif
}

// Task 1. y[i] = a[i] where a[i] > 0, else 0. The slope at 0 is 0.
inline Var relu(const Var& a) {
#ifdef SOLUTION
  Values y = a->value;
  for (double& x : y) x = x > 0 ? x : 0;
  return record(std::move(y), {a},
                [](const std::vector<Var>& inputs, std::size_t, const Values& grad) {
                  Values out = grad;
                  for (std::size_t i = 0; i < out.size(); ++i)
                    if (!(inputs[0]->value[i] > 0)) out[i] = 0;
                  return out;
                });
#else
  (void)a;
  kit::todo("task 1, relu");
#endif
}

// Task 2. Returns, for every node on which root depends along inputs that need a gradient, the
// number of gradients that it will receive in a backward() from root. For root itself this is 0.
inline std::unordered_map<const Node*, int> count_contributions(const Var& root) {
#ifdef SOLUTION
  std::unordered_map<const Node*, int> counts{{root.get(), 0}};
  std::vector<const Node*> unvisited{root.get()};
  while (!unvisited.empty()) {
    const Node* node = unvisited.back();
    unvisited.pop_back();
    for (const Var& input : node->inputs) {
      if (!input->needs_grad) continue;
      const auto [entry, fresh] = counts.try_emplace(input.get(), 0);
      ++entry->second;
      if (fresh) unvisited.push_back(input.get());
    }
  }
  return counts;
#else
  (void)root;
  kit::todo("task 2, count_contributions");
#endif
}

// Given, for the tests. Returns the count of one node; 0 if root does not depend on it.
inline int contributions(const Var& root, const Var& of) {
  const auto counts = count_contributions(root);
  const auto entry = counts.find(of.get());
  return entry == counts.end() ? 0 : entry->second;
}

// Tasks 3 to 5. Adds d root / d leaf to the grad of every leaf that needs one and on which root
// depends; other leaves keep their grad, even if that is "none".
//
// Task 3: throws std::invalid_argument unless root has one element and needs a gradient. A graph
//         may be a million nodes deep and may share nodes in any way.
// Task 4: as soon as the last contribution of a leaf has been added, before the rule of any other
//         node is called, the leaf's hooks run in the order of registration, once per backward().
//         An exception from a hook propagates; a later backward() of other graphs must work.
// Task 5: unless retain is true, the graph is used up: a second backward() through any result of it
//         throws std::logic_error and changes nothing. With retain, backward() may be repeated.
inline void backward(const Var& root, bool retain = false) {
#ifdef SOLUTION
  if (!root->needs_grad) throw std::invalid_argument("backward: no leaf of this needs a gradient");
  if (root->value.size() != 1)
    throw std::invalid_argument("backward: the result must have one element, this has " +
                                std::to_string(root->value.size()));
  struct Inbox {
    int waiting = 0;
    Values sum;
  };
  std::unordered_map<const Node*, Inbox> inboxes;
  for (const auto& [node, count] : count_contributions(root)) {
    if (node->consumed)
      throw std::logic_error("backward: a second time through the same graph, without retain");
    inboxes[node].waiting = count;
  }
  inboxes[root.get()].waiting = 1;  // the initial gradient of 1
  std::vector<Var> ready;
  const auto deliver = [&](const Var& to, Values grad) {
    Inbox& inbox = inboxes.at(to.get());
    if (inbox.sum.empty()) inbox.sum.assign(grad.size(), 0.0);
    for (std::size_t i = 0; i < grad.size(); ++i) inbox.sum[i] += grad[i];
    if (--inbox.waiting > 0) return;
    if (to->rule) {
      ready.push_back(to);
      return;
    }
    if (!to->grad) to->grad = Values(inbox.sum.size(), 0.0);
    for (std::size_t i = 0; i < inbox.sum.size(); ++i) (*to->grad)[i] += inbox.sum[i];
    for (const Hook& hook : to->hooks) hook(to);
  };
  deliver(root, {1.0});
  while (!ready.empty()) {
    const Var node = std::move(ready.back());
    ready.pop_back();
    const Values grad = std::move(inboxes.at(node.get()).sum);
    for (std::size_t i = 0; i < node->inputs.size(); ++i)
      if (node->inputs[i]->needs_grad) deliver(node->inputs[i], node->rule(node->inputs, i, grad));
    if (!retain) node->consumed = true;
  }
#else
  (void)root, (void)retain;
  kit::todo("task 3, backward");
#endif
}

}  // namespace lab03
