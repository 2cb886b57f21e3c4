// Lab 04, part 1: layers.
//
//      x --> [Linear] --> [ReLU] --> [Linear] --> logits     forward() keeps data for backward()
//     dx <-- [Linear] <-- [ReLU] <-- [Linear] <-- dlogits    backward() adds into the gradients of
//                                                            the parameters, and returns dx
//
// Chapter 03's tape does this for you. Here you write it by hand, to see how it works.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab04 {

// Rows of floats, one sample per row.
struct Matrix {
  std::size_t rows = 0, cols = 0;
  std::vector<float> data;
  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), cols(c), data(r * c, 0.0F) {}
  float& operator()(std::size_t i, std::size_t j) { return data[i * cols + j]; }
  float operator()(std::size_t i, std::size_t j) const { return data[i * cols + j]; }
};

// A learned value, and the gradient that backward() adds into. Both are flat and equally long.
//
// A frozen parameter (requires_grad is false) does not change: backward() neither touches its
// gradient nor runs its hooks, and an optimizer's step does not touch its value. Its layer still
// passes the gradient of x back.
struct Parameter {
  std::string name;  // "linear0.weight"
  std::vector<float> value, grad;
  bool requires_grad = true;
  std::vector<std::function<void()>> hooks;
  explicit Parameter(std::size_t count) : value(count, 0.0F), grad(count, 0.0F) {}
  // backward() calls this once, after its last addition to the gradient. In chapter 09 the hooks
  // send gradients while the layers below are still computing theirs.
  void complete() const {
    for (const auto& hook : hooks) hook();
  }
};

inline void zero_grad(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters) p->grad.assign(p->value.size(), 0.0F);
}

// Task 1. y = x W^T + b: y(r, o) = sum over i of x(r, i) W(o, i), plus b(o). W is stored as in
// PyTorch, a row for each output: W(o, i) = weight.value[o * in + i].
class Linear {
 public:
  Linear(std::size_t in, std::size_t out) : weight(in * out), bias(out), in_(in), out_(out) {}

  Matrix forward(const Matrix& x) {
#ifdef SOLUTION
    x_ = x;
    Matrix y(x.rows, out_);
    for (std::size_t r = 0; r < x.rows; ++r)
      for (std::size_t o = 0; o < out_; ++o) {
        float sum = bias.value[o];
        for (std::size_t i = 0; i < in_; ++i) sum += x(r, i) * weight.value[o * in_ + i];
        y(r, o) = sum;
      }
    return y;
#else
    (void)x;
    kit::todo("task 1, Linear::forward");
#endif
  }

  // dy: the gradient of the last result of forward(). Adds into weight.grad and bias.grad, and
  // calls complete() on both parameters; returns the gradient of x.
  Matrix backward(const Matrix& dy) {
#ifdef SOLUTION
    Matrix dx(dy.rows, in_);
    for (std::size_t r = 0; r < dy.rows; ++r)
      for (std::size_t o = 0; o < out_; ++o) {
        if (bias.requires_grad) bias.grad[o] += dy(r, o);
        for (std::size_t i = 0; i < in_; ++i) {
          if (weight.requires_grad) weight.grad[o * in_ + i] += dy(r, o) * x_(r, i);
          dx(r, i) += dy(r, o) * weight.value[o * in_ + i];
        }
      }
    if (weight.requires_grad) weight.complete();
    if (bias.requires_grad) bias.complete();
    return dx;
#else
    (void)dy;
    kit::todo("task 1, Linear::backward");
#endif
  }

  Parameter weight, bias;

 private:
  [[maybe_unused]] std::size_t in_, out_;
  Matrix x_;  // the input of the last forward()
};

// Task 2. y = x where x > 0, else 0, but NaN stays NaN. The slope at 0 is 0.
class ReLU {
 public:
  Matrix forward(const Matrix& x) {
#ifdef SOLUTION
    y_ = x;
    for (float& v : y_.data)
      if (v <= 0) v = 0;  // not v > 0 ? v : 0, which turns NaN into 0
    return y_;
#else
    (void)x;
    kit::todo("task 2, ReLU::forward");
#endif
  }

  Matrix backward(const Matrix& dy) {
#ifdef SOLUTION
    Matrix dx = dy;
    for (std::size_t i = 0; i < dx.data.size(); ++i)
      if (y_.data[i] == 0) dx.data[i] = 0;
    return dx;
#else
    (void)dy;
    kit::todo("task 2, ReLU::backward");
#endif
  }

 private:
  Matrix y_;
};

// Task 2. Linear layers of these widths with a ReLU between neighbours: MLP({784, 100, 10}).
class MLP {
 public:
  explicit MLP(const std::vector<std::size_t>& widths) {
    if (widths.size() < 2) throw std::invalid_argument("MLP: needs an input and an output width");
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      linears_.push_back(std::make_unique<Linear>(widths[i], widths[i + 1]));
      linears_.back()->weight.name = "linear" + std::to_string(i) + ".weight";
      linears_.back()->bias.name = "linear" + std::to_string(i) + ".bias";
    }
    relus_.resize(linears_.size() - 1);
  }

  Matrix forward(const Matrix& x) {
#ifdef SOLUTION
    Matrix h = x;
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      if (i > 0) h = relus_[i - 1].forward(h);
      h = linears_[i]->forward(h);
    }
    return h;
#else
    (void)x;
    kit::todo("task 2, MLP::forward");
#endif
  }

  // At the end, runs each callback in ends_ once.
  void backward(const Matrix& dlogits) {
#ifdef SOLUTION
    Matrix d = dlogits;
    for (std::size_t i = linears_.size(); i-- > 0;) {
      d = linears_[i]->backward(d);
      if (i > 0) d = relus_[i - 1].backward(d);
    }
    for (const auto& end : ends_) end();
#else
    (void)dlogits;
    kit::todo("task 2, MLP::backward");
#endif
  }

  // Given. Returns the parameters in PyTorch's order: first layer first, weight before bias.
  [[nodiscard]] std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all;
    for (const auto& linear : linears_) {
      all.push_back(&linear->weight);
      all.push_back(&linear->bias);
    }
    return all;
  }
  // Given. With these, an MLP is a model for chapter 09 (labs/kit/training.hpp).
  void on_gradient(Parameter* parameter, std::function<void()> hook) {
    parameter->hooks.push_back(std::move(hook));
  }
  void on_backward_end(std::function<void()> callback) { ends_.push_back(std::move(callback)); }

 private:
  std::vector<std::unique_ptr<Linear>> linears_;
  std::vector<ReLU> relus_;
  std::vector<std::function<void()>> ends_;
};

}  // namespace lab04
