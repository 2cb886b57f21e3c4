// Lab 03: reverse-mode automatic differentiation, a tape.
//
// Every operation writes down what it was computed from. backward() walks that record from the
// result to the leaves, and hands gradients down:
//
//     x ----> [mul] ----> y ----> [sum] ----> loss        forward: values, left to right
//     x <---- [mul] <---- y <---- [sum] <---- 1           backward: gradients, right to left
//
// A node may hand its gradient on only when it is complete: when everything that was computed from
// it (and that the result depends on) has contributed. The same holds for a leaf: its hooks run
// once, when its gradient is complete, and at that very moment. Chapter 09 sends gradients over the
// network from there, while backward() is still busy with the layers below.
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
using Var = std::shared_ptr<Node>;  // a handle: its copies are the same variable
using Hook = std::function<void(const Var& leaf)>;
// The gradient of input number `input`, given the gradient of the result. A rule may hold numbers
// of its own (lab 13's matrix product: how many rows and columns), but no Var: it gets the inputs.
using Rule =
    std::function<Values(const std::vector<Var>& inputs, std::size_t input, const Values& grad)>;

// A value, and where it came from. A leaf came from nowhere: it has no inputs and no rule.
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

// Given. Each node holds the one before it: a long graph must not be destroyed by recursion.
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

// ---- given: leaves, and what a driver asks ----
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
// A value, its inputs and a rule are enough for further operations, without a look at Node: the
// tests record such, and so does lab 13.
inline Var record(Values value, std::vector<Var> inputs, Rule rule) {
  auto node = std::make_shared<Node>();
  node->value = std::move(value);
  for (const Var& input : inputs) node->needs_grad |= input->needs_grad;
  if (!node->needs_grad) return node;  // nobody will ask: no history
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

// Task 1. y[i] = a[i] b[i]; other lengths are refused as in add. a and b may be the same variable.
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

// Task 1. One element: the sum of all of a's. The sum of nothing is 0.
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

// Task 1. y[i] = a[i] where a[i] > 0, else 0. At 0 the slope is taken to be 0.
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

// Task 2. For every node that root was computed from, along inputs that need a gradient: how many
// gradients it will receive in a backward() from root. root itself receives none of them: 0.
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

// Given: what the tests ask.
inline int contributions(const Var& root, const Var& of) {
  const auto counts = count_contributions(root);
  const auto entry = counts.find(of.get());
  return entry == counts.end() ? 0 : entry->second;
}

// Tasks 3 to 5. d root / d leaf is added into the grad of every leaf that needs one and that root
// was computed from; other leaves keep what they have, even if that is "none".
//
// Task 3: root has one element and needs a gradient, else std::invalid_argument. A graph may be a
//         million nodes deep, and share nodes in as many ways as it likes.
// Task 4: when the last contribution of a leaf has been added, and before any other node's rule is
//         asked, its hooks run, in the order of their registration: once in each backward(). What
//         a hook throws goes on to the caller, and a backward() of other graphs is as ever.
// Task 5: unless retain is true, the graph is used up: a second backward() through any result of it
//         is a std::logic_error, and has then changed nothing. With retain it may be repeated.
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
  inboxes[root.get()].waiting = 1;  // the 1 from outside
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
