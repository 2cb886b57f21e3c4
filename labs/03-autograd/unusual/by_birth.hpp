// Unusual and correct: backward counts no contributions. Nodes are numbered at creation, so a node
// is younger than all its inputs, and a walk from the youngest to the oldest reaches every node
// after its last contribution. A leaf is complete as soon as its oldest user has been visited.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

namespace lab03 {

using Values = std::vector<double>;

class Variable {
 public:
  Values value, grad, partial;  // partial: the sum within one backward
  bool learns = false, has_grad = false, spent = false;
  long birth = 0;
  std::vector<std::shared_ptr<Variable>> inputs;
  std::function<Values(const std::vector<std::shared_ptr<Variable>>&, std::size_t, const Values&)>
      rule;
  std::vector<std::function<void(const std::shared_ptr<Variable>&)>> hooks;
  Variable() : birth(next()++) {}
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    // The outermost destructor collects everything that nested ones release.
    static thread_local std::vector<std::shared_ptr<Variable>>* bin = nullptr;
    std::vector<std::shared_ptr<Variable>> own;
    const bool outermost = bin == nullptr;
    if (outermost) bin = &own;
    for (auto& input : inputs) bin->push_back(std::move(input));
    inputs.clear();
    while (outermost && !own.empty()) {
      const auto last = std::move(own.back());
      own.pop_back();
    }
    if (outermost) bin = nullptr;
  }

 private:
  static long& next() {
    static thread_local long counter = 0;
    return counter;
  }
};
using Var = std::shared_ptr<Variable>;
using Rule =
    std::function<Values(const std::vector<Var>& inputs, std::size_t input, const Values& grad)>;

inline Var leaf(Values value, bool needs_grad = true) {
  auto v = std::make_shared<Variable>();
  v->value = std::move(value);
  v->learns = needs_grad;
  return v;
}
inline const Values& value(const Var& v) { return v->value; }
inline bool needs_grad(const Var& v) { return v->learns; }
inline const Values* grad(const Var& v) { return v->has_grad ? &v->grad : nullptr; }
inline void zero_grad(const Var& v) { v->has_grad = false; }
inline void on_grad(const Var& v, std::function<void(const Var&)> hook) {
  v->hooks.push_back(std::move(hook));
}

inline Var record(Values value, const std::vector<Var>& inputs, Rule rule) {
  Var v = leaf(std::move(value), false);
  v->inputs = inputs;
  v->rule = std::move(rule);
  for (const Var& input : inputs) v->learns |= input->learns;
  if (!v->learns) v->inputs.clear();
  return v;
}

inline void fit(const Var& a, const Var& b) {
  if (a->value.size() != b->value.size()) throw std::invalid_argument("lengths differ");
}
inline Var add(const Var& a, const Var& b) {
  fit(a, b);
  Values y(a->value.size());
  std::transform(a->value.begin(), a->value.end(), b->value.begin(), y.begin(), std::plus<>());
  return record(y, {a, b}, [](const auto&, std::size_t, const Values& grad) { return grad; });
}
inline Values times(const Values& a, const Values& b) {
  Values y(a.size());
  std::transform(a.begin(), a.end(), b.begin(), y.begin(), std::multiplies<>());
  return y;
}
inline Var mul(const Var& a, const Var& b) {
  fit(a, b);
  return record(times(a->value, b->value), {a, b},
                [](const auto& inputs, std::size_t i, const Values& grad) {
                  return times(grad, inputs[i == 0 ? 1 : 0]->value);
                });
}
inline Var relu(const Var& a) {
  Values y, slope;
  for (const double x : a->value) y.push_back(x > 0 ? x : 0), slope.push_back(x > 0);
  return record(
      y, {a}, [slope](const auto&, std::size_t, const Values& grad) { return times(grad, slope); });
}
inline Var sum(const Var& a) {
  double total = 0;
  for (const double x : a->value) total += x;
  return record({total}, {a}, [n = a->value.size()](const auto&, std::size_t, const Values& grad) {
    return Values(n, grad[0]);
  });
}

// Returns the results on which root depends, the youngest first, without leaves.
inline std::vector<Var> results_below(const Var& root) {
  std::set<Variable*> seen{root.get()};
  std::vector<Var> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<Var> inputs = found[i]->inputs;
    for (const Var& input : inputs)
      if (!input->inputs.empty() && seen.insert(input.get()).second) found.push_back(input);
  }
  std::sort(found.begin(), found.end(),
            [](const Var& a, const Var& b) { return a->birth > b->birth; });
  return found;
}

inline int contributions(const Var& root, const Var& of) {
  int n = 0;
  for (const Var& v : results_below(root))
    n += int(std::count(v->inputs.begin(), v->inputs.end(), of));
  return of->learns ? n : 0;
}

inline void complete(const Var& v) {
  if (!v->has_grad) v->grad.assign(v->value.size(), 0);
  v->has_grad = true;
  for (std::size_t i = 0; i < v->grad.size(); ++i) v->grad[i] += v->partial[i];
  for (const auto& hook : v->hooks) hook(v);
}

inline void backward(const Var& root, bool retain = false) {
  if (!root->learns || root->value.size() != 1)
    throw std::invalid_argument("not a result to begin from");
  root->partial = {1};
  if (root->inputs.empty()) return complete(root);
  const std::vector<Var> order = results_below(root);
  std::map<Variable*, std::size_t> oldest_user;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k]->spent) throw std::logic_error("this graph is spent");
    for (const Var& input : order[k]->inputs)
      if (input->learns) oldest_user[input.get()] = k;
  }
  for (const auto& [v, k] : oldest_user) v->partial.assign(v->value.size(), 0);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Var& v = order[k];
    const auto& in = v->inputs;
    for (std::size_t j = 0; j < in.size(); ++j) {
      if (!in[j]->learns) continue;
      const Values part = v->rule(in, j, v->partial);
      for (std::size_t i = 0; i < part.size(); ++i) in[j]->partial[i] += part[i];
    }
    for (std::size_t j = 0; j < in.size(); ++j) {
      const bool again = std::find(in.begin(), in.begin() + long(j), in[j]) != in.begin() + long(j);
      if (in[j]->learns && in[j]->inputs.empty() && oldest_user[in[j].get()] == k && !again)
        complete(in[j]);
    }
    v->spent = !retain;
  }
}

}  // namespace lab03
