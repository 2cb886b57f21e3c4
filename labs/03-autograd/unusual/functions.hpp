// Unusual and correct: operations are separate objects with closures, as in most frameworks. A
// variable is a value and an edge to the operation that made it; a leaf's edge leads to a
// collector, which holds its gradient and hooks. Ready operations wait in a priority queue.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace lab03 {

using Values = std::vector<double>;
class Var;

struct Function {
  std::vector<std::shared_ptr<Function>> next;             // null if that input needs no gradient
  std::vector<std::function<Values(const Values&)>> pull;  // one per entry of next
  unsigned long age = 0;
  bool used_up = false;
  virtual ~Function();
  virtual void collect(const Values&) {}
  [[nodiscard]] virtual bool collects() const { return false; }
};

inline Function::~Function() {
  std::vector<std::shared_ptr<Function>> heap = std::move(next);
  while (!heap.empty()) {
    const std::shared_ptr<Function> f = std::move(heap.back());
    heap.pop_back();
    if (f && f.use_count() == 1) {
      for (auto& n : f->next) heap.push_back(std::move(n));
      f->next.clear();
    }
  }
}

struct State {  // of a variable; the function may outlive the State, and does not own it
  std::shared_ptr<const Values> value;
  std::shared_ptr<Function> function;
};

struct Collector : Function {
  std::unique_ptr<Values> grad;
  std::vector<std::function<void(const Var&)>> hooks;
  std::weak_ptr<State> leaf;
  void collect(const Values& g) override;
  [[nodiscard]] bool collects() const override { return true; }
};

class Var {
 public:
  std::shared_ptr<State> state = std::make_shared<State>();
  [[nodiscard]] const Values& value() const { return *state->value; }
  [[nodiscard]] Collector* collector() const {
    return dynamic_cast<Collector*>(state->function.get());
  }
  bool operator==(const Var& other) const { return state == other.state; }
};

inline void Collector::collect(const Values& g) {
  if (grad)
    for (std::size_t i = 0; i < g.size(); ++i) (*grad)[i] += g[i];
  else
    grad = std::make_unique<Values>(g);
  Var self;
  self.state = leaf.lock();
  for (std::size_t i = 0; i < hooks.size(); ++i) hooks[i](self);
}

inline Var leaf(Values value, bool needs_grad = true) {
  Var v;
  v.state->value = std::make_shared<const Values>(std::move(value));
  if (needs_grad) {
    auto collector = std::make_shared<Collector>();
    collector->leaf = v.state;
    v.state->function = collector;
  }
  return v;
}
inline const Values& value(const Var& v) { return v.value(); }
inline bool needs_grad(const Var& v) { return v.state->function != nullptr; }
inline const Values* grad(const Var& v) {
  return v.collector() ? v.collector()->grad.get() : nullptr;
}
inline void zero_grad(const Var& v) {
  if (v.collector()) v.collector()->grad.reset();
}
inline void on_grad(const Var& v, std::function<void(const Var&)> hook) {
  if (v.collector()) v.collector()->hooks.push_back(std::move(hook));
}

inline Var make(Values value, const std::vector<Var>& inputs,
                std::vector<std::function<Values(const Values&)>> pull) {
  static unsigned long births = 0;
  Var v = leaf(std::move(value), false);
  bool wanted = false;
  for (const Var& input : inputs) wanted |= needs_grad(input);
  if (!wanted) return v;
  v.state->function = std::make_shared<Function>();
  v.state->function->age = ++births;
  for (const Var& input : inputs) v.state->function->next.push_back(input.state->function);
  v.state->function->pull = std::move(pull);
  return v;
}

using Rule =
    std::function<Values(const std::vector<Var>& inputs, std::size_t input, const Values& grad)>;

// A rule gets the inputs' values in variables without edges, so that it does not hold the graph.
inline Var record(Values value, const std::vector<Var>& inputs, const Rule& rule) {
  std::vector<Var> bare(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) bare[i].state->value = inputs[i].state->value;
  std::vector<std::function<Values(const Values&)>> pull;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    pull.emplace_back([=](const Values& grad) { return rule(bare, i, grad); });
  return make(std::move(value), inputs, std::move(pull));
}

inline Values product(const Values& a, const Values& b) {
  if (a.size() != b.size()) throw std::invalid_argument("mul of different lengths");
  Values y;
  for (std::size_t i = 0; i < a.size(); ++i) y.push_back(a[i] * b[i]);
  return y;
}
inline Var add(const Var& a, const Var& b) {
  if (a.value().size() != b.value().size()) throw std::invalid_argument("add of different lengths");
  Values y;
  for (std::size_t i = 0; i < a.value().size(); ++i) y.push_back(a.value()[i] + b.value()[i]);
  const auto same = [](const Values& g) { return g; };
  return make(std::move(y), {a, b}, {same, same});
}
inline Var mul(const Var& a, const Var& b) {
  const auto keep_a = a.state->value, keep_b = b.state->value;
  return make(product(*keep_a, *keep_b), {a, b},
              {[keep_b](const Values& g) { return product(g, *keep_b); },
               [keep_a](const Values& g) { return product(g, *keep_a); }});
}
inline Var sum(const Var& a) {
  double total = 0;
  for (const double x : a.value()) total += x;
  const std::size_t n = a.value().size();
  return make({total}, {a}, {[n](const Values& g) { return Values(n, g.front()); }});
}
inline Var relu(const Var& a) {
  Values y, on;
  for (const double x : a.value()) on.push_back(x > 0 ? 1 : 0), y.push_back(x > 0 ? x : 0);
  return make(std::move(y), {a}, {[on](const Values& g) { return product(g, on); }});
}

inline std::unordered_map<Function*, int> arrows(Function* root) {
  std::unordered_map<Function*, int> in{{root, 0}};
  std::queue<Function*> open;
  for (open.push(root); !open.empty(); open.pop())
    for (const auto& n : open.front()->next)
      if (n && in[n.get()]++ == 0) open.push(n.get());
  return in;
}
inline int contributions(const Var& root, const Var& of) {
  auto in = arrows(root.state->function.get());
  const auto found = in.find(of.state->function.get());
  return found == in.end() ? 0 : found->second;
}

inline void backward(const Var& root, bool retain = false) {
  Function* const first = root.state->function.get();
  if (first == nullptr) throw std::invalid_argument("nothing to differentiate by");
  if (root.value().size() != 1) throw std::invalid_argument("begin from one number");
  auto missing = arrows(first);
  for (const auto& [f, n] : missing)
    if (f->used_up) throw std::logic_error("used up by an earlier backward");
  const auto younger = [](const Function* a, const Function* b) { return a->age < b->age; };
  std::priority_queue<Function*, std::vector<Function*>, decltype(younger)> ready(younger);
  std::unordered_map<Function*, Values> sums;
  const auto arrive = [&](Function* f) {
    if (f->collects())
      f->collect(sums[f]);
    else
      ready.push(f);
  };
  sums[first] = {1.0};
  arrive(first);
  while (!ready.empty()) {
    Function* const f = ready.top();
    ready.pop();
    const Values g = std::move(sums[f]);
    for (std::size_t i = 0; i < f->next.size(); ++i) {
      Function* const to = f->next[i].get();
      if (to == nullptr) continue;
      const Values part = f->pull[i](g);
      Values& sum = sums[to];
      sum.resize(part.size());
      for (std::size_t j = 0; j < part.size(); ++j) sum[j] += part[j];
      if (--missing[to] == 0) arrive(to);
    }
    f->used_up = !retain;
  }
}

}  // namespace lab03
