// Unusual and correct: each kind of state is one array for all parameters; SGD counts its steps;
// AdamW is written as a moving average, with the two corrections in one factor, as section 2 of the
// Adam paper suggests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "layers.hpp"

namespace lab04 {

class FlatState {
 public:
  explicit FlatState(std::vector<Parameter*> parameters) : parameters_(std::move(parameters)) {
    for (const Parameter* p : parameters_) count_ += p->value.size();
  }
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return parameters_; }

 protected:
  template <class Update>
  void each(Update update) {
    std::size_t at = 0;
    for (Parameter* p : parameters_)
      for (std::size_t i = 0; i < p->value.size(); ++i, ++at)
        if (p->requires_grad) update(at, p->value[i], p->grad[i]);
  }
  void expect(const std::vector<double>& state, std::size_t count) const {
    if (state.size() != count) throw std::invalid_argument("not a state of this optimizer");
  }
  std::vector<Parameter*> parameters_;
  std::size_t count_ = 0;
};

struct SgdOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
};

class Sgd : public FlatState {
 public:
  Sgd(std::vector<Parameter*> parameters, SgdOptions options)
      : FlatState(std::move(parameters)), o_(options), velocity_(count_) {}
  void set_lr(double lr) { o_.lr = lr; }
  void step() {
    const float taken = steps_++ == 0 ? 1.0F : float(1 - o_.dampening);
    each([&](std::size_t at, float& p, float g) {
      const float d = g + float(o_.weight_decay) * p;
      velocity_[at] = float(o_.momentum) * velocity_[at] + (o_.momentum == 0 ? d : taken * d);
      p -= float(o_.lr) * velocity_[at];
    });
  }
  std::vector<double> state() const {
    std::vector<double> all(velocity_.begin(), velocity_.end());
    all.push_back(double(steps_));
    return all;
  }
  void load(const std::vector<double>& state) {
    expect(state, count_ + 1);
    std::copy_n(state.begin(), count_, velocity_.begin());
    steps_ = long(state.back());
  }

 private:
  SgdOptions o_;
  std::vector<float> velocity_;
  long steps_ = 0;
};

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
};

class AdamW : public FlatState {
 public:
  AdamW(std::vector<Parameter*> parameters, AdamWOptions options)
      : FlatState(std::move(parameters)), o_(options), m_(count_), v_(count_) {}
  void set_lr(double lr) { o_.lr = lr; }
  void step() {
    power1_ *= o_.beta1;
    power2_ *= o_.beta2;
    const double root = std::sqrt(1 - power2_);
    const double factor = o_.lr * root / (1 - power1_);
    each([&](std::size_t at, float& p, float g) {
      m_[at] += (1 - o_.beta1) * (g - m_[at]);
      v_[at] += (1 - o_.beta2) * (double(g) * g - v_[at]);
      p -= float(o_.lr * o_.weight_decay) * p;
      p -= float(factor * m_[at] / (std::sqrt(v_[at]) + o_.eps * root));
    });
  }
  std::vector<double> state() const {
    std::vector<double> all{power1_, power2_};
    for (std::size_t i = 0; i < count_; ++i) all.insert(all.end(), {m_[i], v_[i]});
    return all;
  }
  void load(const std::vector<double>& state) {
    expect(state, 2 * count_ + 2);
    power1_ = state[0], power2_ = state[1];
    for (std::size_t i = 0; i < count_; ++i) m_[i] = state[2 * i + 2], v_[i] = state[2 * i + 3];
  }

 private:
  AdamWOptions o_;
  std::vector<double> m_, v_;
  double power1_ = 1, power2_ = 1;
};

}  // namespace lab04
