// Unusual and correct: Linear keeps x transposed and works column by column; ReLU keeps a mask; the
// MLP is a list of steps, each a pair of functions, in which a ReLU belongs to the Linear before
// it.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <stdexcept>
#include <string>
#include <vector>

namespace lab04 {

struct Matrix {
  std::size_t rows = 0, cols = 0;
  std::vector<float> data;
  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), cols(c), data(r * c) {}
  float& operator()(std::size_t i, std::size_t j) { return data[i * cols + j]; }
  float operator()(std::size_t i, std::size_t j) const { return data[i * cols + j]; }
};

struct Parameter {
  std::string name;
  std::vector<float> value, grad;
  bool requires_grad = true;
  std::vector<std::function<void()>> hooks;
  void complete() const {
    if (!requires_grad) return;
    for (const auto& hook : hooks) hook();
  }
  explicit Parameter(std::size_t count) : value(count), grad(count) {}
};

inline void zero_grad(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters)
    for (float& g : p->grad) g = 0;
}

class Linear {
 public:
  Linear(std::size_t in, std::size_t out) : weight(in * out), bias(out) {}
  Matrix forward(const Matrix& x) {
    const std::size_t outs = bias.value.size();
    columns_.assign(x.cols, std::vector<double>(x.rows));
    Matrix y(x.rows, outs);
    for (std::size_t i = 0; i < x.cols; ++i)
      for (std::size_t r = 0; r < x.rows; ++r) columns_[i][r] = x(r, i);
    for (std::size_t o = 0; o < outs; ++o) {
      std::vector<double> column(x.rows, bias.value[o]);
      for (std::size_t i = 0; i < x.cols; ++i)
        for (std::size_t r = 0; r < x.rows; ++r)
          column[r] += columns_[i][r] * weight.value[o * x.cols + i];
      for (std::size_t r = 0; r < x.rows; ++r) y(r, o) = float(column[r]);
    }
    return y;
  }
  Matrix backward(const Matrix& dy) {
    const std::size_t ins = columns_.size();
    Matrix dx(dy.rows, ins);
    const Parameter before_weight = weight, before_bias = bias;
    for (std::size_t o = 0; o < dy.cols; ++o) {
      double bias_sum = 0;
      for (std::size_t r = 0; r < dy.rows; ++r) bias_sum += dy(r, o);
      bias.grad[o] = float(bias.grad[o] + bias_sum);
      for (std::size_t i = 0; i < ins; ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < dy.rows; ++r) {
          sum += columns_[i][r] * dy(r, o);
          dx(r, i) += dy(r, o) * weight.value[o * ins + i];
        }
        weight.grad[o * ins + i] = float(weight.grad[o * ins + i] + sum);
      }
    }
    // A frozen parameter gets its old gradient back. The bias completes first; either order is
    // right.
    if (!weight.requires_grad) weight.grad = before_weight.grad;
    if (!bias.requires_grad) bias.grad = before_bias.grad;
    bias.complete();
    weight.complete();
    return dx;
  }
  Parameter weight, bias;

 private:
  std::vector<std::vector<double>> columns_;
};

class ReLU {
 public:
  Matrix forward(Matrix x) {
    off_.clear();
    for (float& v : x.data) {
      off_.push_back(!(v > 0));
      if (v < 0) v = 0;
    }
    return x;
  }
  Matrix backward(Matrix d) const {
    for (std::size_t i = 0; i < d.data.size(); ++i)
      if (off_[i]) d.data[i] = 0;
    return d;
  }

 private:
  std::vector<bool> off_;
};

class MLP {
 public:
  explicit MLP(const std::vector<std::size_t>& widths) {
    if (widths.size() < 2) throw std::invalid_argument("too few widths");
    for (std::size_t i = 1; i < widths.size(); ++i) {
      Linear& linear = linears_.emplace_back(widths[i - 1], widths[i]);
      linear.weight.name = "linear" + std::to_string(i - 1) + ".weight";
      linear.bias.name = "linear" + std::to_string(i - 1) + ".bias";
      all_.insert(all_.end(), {&linear.weight, &linear.bias});
      if (i + 1 == widths.size()) {
        steps_.push_back({[&](const Matrix& x) { return linear.forward(x); },
                          [&](const Matrix& d) { return linear.backward(d); }});
      } else {
        ReLU& relu = relus_.emplace_back();
        steps_.push_back({[&](const Matrix& x) { return relu.forward(linear.forward(x)); },
                          [&](const Matrix& d) { return linear.backward(relu.backward(d)); }});
      }
    }
  }
  MLP(const MLP&) = delete;
  MLP& operator=(const MLP&) = delete;
  Matrix forward(Matrix x) {
    for (const Step& step : steps_) x = step.there(x);
    return x;
  }
  void backward(Matrix d) {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) d = step->back(d);
    for (std::size_t i = 0; i < ends_.size(); ++i) ends_[i]();
  }
  static void on_gradient(Parameter* parameter, const std::function<void()>& hook) {
    parameter->hooks.push_back(hook);
  }
  void on_backward_end(const std::function<void()>& callback) { ends_.push_back(callback); }
  std::vector<Parameter*> parameters() const { return all_; }

 private:
  struct Step {
    std::function<Matrix(const Matrix&)> there, back;
  };
  std::vector<Parameter*> all_;
  std::vector<std::function<void()>> ends_;
  std::list<Linear> linears_;
  std::list<ReLU> relus_;
  std::vector<Step> steps_;
};

}  // namespace lab04
