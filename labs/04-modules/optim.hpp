// Lab 04, part 3: optimizers, by PyTorch's formulas.
//
//     SGD      d = g + weight_decay p
//              buffer = momentum buffer + (1 - dampening) d       at the first step: buffer = d
//              p = p - lr buffer                                  without momentum: p - lr d
//
//     AdamW    p = p - lr weight_decay p                          decoupled: not a part of g
//              m = beta1 m + (1 - beta1) g
//              v = beta2 v + (1 - beta2) g g                      at step t = 1, 2, 3, ...
//              p = p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// set_lr() may change the learning rate between steps. Each parameter has its own state. A step
// does not change frozen parameters (layers.hpp), not even by weight decay; the set of frozen
// parameters never changes.
//
// state() returns everything that an optimizer remembers between steps, as numbers whose meaning is
// up to you. load() restores it in an optimizer of the same kind for parameters of the same
// lengths, which then continues as the first one would have, bit for bit. If the count of numbers
// is wrong, load() throws std::invalid_argument and changes nothing. Options and parameters are not
// part of the state.
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "layers.hpp"

namespace lab04 {

struct SgdOptions {  // none is negative
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
};

// Task 4.
class Sgd {
 public:
  Sgd(std::vector<Parameter*> parameters, SgdOptions options)
      : parameters_(std::move(parameters)), options_(options) {}
  void set_lr(double lr) { options_.lr = lr; }
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return parameters_; }

  void step() {
#ifdef SOLUTION
    const bool first = buffers_.empty();
    if (first) buffers_.resize(parameters_.size());
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      std::vector<float>& value = parameters_[k]->value;
      buffers_[k].resize(value.size());
      if (!parameters_[k]->requires_grad) continue;
      for (std::size_t i = 0; i < value.size(); ++i) {
        const double d = parameters_[k]->grad[i] + options_.weight_decay * value[i];
        float& buffer = buffers_[k][i];
        buffer = float(first ? d : options_.momentum * buffer + (1 - options_.dampening) * d);
        value[i] = float(value[i] - options_.lr * (options_.momentum != 0 ? buffer : d));
      }
    }
#else
    kit::todo("task 4, Sgd::step");
#endif
  }

  [[nodiscard]] std::vector<double> state() const {
#ifdef SOLUTION
    std::vector<double> all;
    for (const std::vector<float>& buffer : buffers_)
      all.insert(all.end(), buffer.begin(), buffer.end());
    return all;
#else
    kit::todo("task 4, Sgd::state");
#endif
  }
  void load(const std::vector<double>& state) {
#ifdef SOLUTION
    std::size_t at = 0, count = 0;
    for (const Parameter* p : parameters_) count += p->value.size();
    if (!state.empty() && state.size() != count)
      throw std::invalid_argument("Sgd: a state of " + std::to_string(state.size()) + " numbers");
    buffers_.clear();  // before the first step, it has no state
    if (state.empty()) return;
    for (const Parameter* p : parameters_) {
      const auto first = state.begin() + std::ptrdiff_t(at);
      buffers_.emplace_back(first, first + std::ptrdiff_t(p->value.size()));
      at += p->value.size();
    }
#else
    (void)state;
    kit::todo("task 4, Sgd::load");
#endif
  }

 private:
  std::vector<Parameter*> parameters_;
  SgdOptions options_;
#ifdef SOLUTION
  std::vector<std::vector<float>> buffers_;
#endif
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

// Task 5.
class AdamW {
 public:
  AdamW(std::vector<Parameter*> parameters, AdamWOptions options)
      : parameters_(std::move(parameters)), options_(options) {}
  void set_lr(double lr) { options_.lr = lr; }
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return parameters_; }

  void step() {
#ifdef SOLUTION
    const AdamWOptions& o = options_;
    states_.resize(parameters_.size());
    ++steps_;
    const double correct1 = 1 - std::pow(o.beta1, steps_);
    const double correct2 = 1 - std::pow(o.beta2, steps_);
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      State& state = states_[k];
      std::vector<float>& value = parameters_[k]->value;
      state.m.resize(value.size());
      state.v.resize(value.size());
      if (!parameters_[k]->requires_grad) continue;
      for (std::size_t i = 0; i < value.size(); ++i) {
        const double g = parameters_[k]->grad[i];
        state.m[i] = float(o.beta1 * state.m[i] + (1 - o.beta1) * g);
        state.v[i] = float(o.beta2 * state.v[i] + (1 - o.beta2) * g * g);
        const double update = state.m[i] / correct1 / (std::sqrt(state.v[i] / correct2) + o.eps);
        const double decayed = value[i] * (1 - o.lr * o.weight_decay);
        value[i] = float(decayed - o.lr * update);
      }
    }
#else
    kit::todo("task 5, AdamW::step");
#endif
  }

  [[nodiscard]] std::vector<double> state() const {
#ifdef SOLUTION
    std::vector<double> all{double(steps_)};
    for (const State& one : states_) {
      all.insert(all.end(), one.m.begin(), one.m.end());
      all.insert(all.end(), one.v.begin(), one.v.end());
    }
    return all;
#else
    kit::todo("task 5, AdamW::state");
#endif
  }
  void load(const std::vector<double>& state) {
#ifdef SOLUTION
    std::size_t count = 1;
    for (const Parameter* p : parameters_) count += 2 * p->value.size();
    const bool fresh = state.size() == 1 && state[0] == 0;
    if (!fresh && state.size() != count)
      throw std::invalid_argument("AdamW: a state of " + std::to_string(state.size()) + " numbers");
    steps_ = int(state[0]);
    states_.clear();
    auto next = state.begin() + 1;
    for (const Parameter* p : parameters_) {
      if (fresh) break;
      const auto length = std::ptrdiff_t(p->value.size());
      states_.push_back({{next, next + length}, {next + length, next + 2 * length}});
      next += 2 * length;
    }
#else
    (void)state;
    kit::todo("task 5, AdamW::load");
#endif
  }

 private:
  std::vector<Parameter*> parameters_;
  AdamWOptions options_;
#ifdef SOLUTION
  struct State {
    std::vector<float> m, v;
  };
  std::vector<State> states_;
  int steps_ = 0;
#endif
};

}  // namespace lab04
