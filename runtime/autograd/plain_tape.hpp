// Reverse-mode autograd in its plainest form: a list of values in the order of their computation,
// each with a step that passes its gradient on to its operands. backward() runs the steps from the
// loss to the beginning.
//
//   PlainTape tape;                         place   value      backward step, g is the gradient
//   const auto w = tape.leaf(scalar(3));      0     w = 3      none: a leaf
//   const auto x = tape.leaf(scalar(2));      1     x = 2      none
//   const auto p = tape.mul(w, x);            2     p = w x    add g x to w's gradient, g w to x's
//   const auto y = tape.mul(p, w);            3     y = p w    add g w to p's gradient, g p to w's
//   tape.backward(y);
//   tape.grad(w);                           // 12
//
// A value is computed only from values before it on the tape. In reverse order, the steps of all
// values that use a value therefore run before that value's own step, which gets the complete
// gradient. There is no need to count uses.
//
// The engine (node.hpp, engine.hpp) computes the same gradients with the same kernels and adds them
// in the same order, so the bits are equal. It differs in four ways:
// - It knows when a leaf is complete. This walk reaches the leaves last, because they are recorded
//   first; the engine counts uses, and calls a leaf's hooks after its last gradient.
// - Each tensor refers to the operation that made it. There is no tape object, a graph that no
//   tensor refers to is freed, and backward visits only the operations that the loss depends on.
// - Functions can omit the gradients of frozen inputs.
// - Gradients are added in place if they have no other owner. Here each addition allocates.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kernels/matmul.hpp"
#include "runtime/tensor/raw.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// For f32, on any device. Operations throw UsageError if their operands do not fit.
class PlainTape {
 public:
  using Value = std::size_t;  // a place on the tape

  PlainTape() = default;
  PlainTape(const PlainTape&) = delete;  // the steps refer to this object
  PlainTape& operator=(const PlainTape&) = delete;

  [[nodiscard]] const Tensor& value(Value v) const { return entries_.at(v).value; }
  // Undefined unless the loss depends on v.
  [[nodiscard]] const Tensor& grad(Value v) const { return entries_.at(v).grad; }

  Value leaf(const Tensor& value) { return record(value, {}); }
  Value add(Value a, Value b) {  // broadcasts, as mul does
    return record(elementwise(raw::Binary::add, value(a), value(b)), [=, this](const Tensor& g) {
      give(a, g);
      give(b, g);
    });
  }
  Value mul(Value a, Value b) {
    return record(elementwise(raw::Binary::mul, value(a), value(b)), [=, this](const Tensor& g) {
      give(a, elementwise(raw::Binary::mul, g, value(b)));
      give(b, elementwise(raw::Binary::mul, g, value(a)));
    });
  }
  Value relu(Value x) {
    const Tensor y = raw::unary(raw::Unary::relu, value(x), "relu");
    return record(
        y, [=, this](const Tensor& g) { give(x, elementwise(raw::Binary::relu_backward, g, y)); });
  }
  Value matmul(Value a, Value b) {  // (m, k) x (k, n) -> (m, n)
    return record(product(value(a), value(b)), [=, this](const Tensor& g) {
      give(a, product(g, value(b).transpose(0, 1)));
      give(b, product(value(a).transpose(0, 1), g));
    });
  }
  Value sum(Value x) {  // of all elements
    const std::vector<bool> all(static_cast<std::size_t>(value(x).dim()), true);
    return record(raw::sum(value(x), all, false, "sum"),
                  [=, this](const Tensor& g) { give(x, g.expand(value(x).sizes())); });
  }

  // Computes the gradients of the value at `loss`, which must have one element. Throws UsageError
  // if called twice: a second pass would propagate the gradients of the first pass again.
  void backward(Value loss) {
    require(value(loss).numel() == 1,
            "backward() needs a loss of one element, got " + to_string(value(loss).sizes()));
    require(!std::exchange(walked_, true), "backward() a second time: use a new tape");
    entries_[loss].grad = ones_like(value(loss));
    for (Value v = loss + 1; v-- > 0;)
      if (grad(v).defined() && entries_[v].backward) entries_[v].backward(grad(v));
  }

 private:
  struct TapeEntry {
    Tensor value, grad;
    std::function<void(const Tensor& grad)> backward;  // empty for leaves
  };

  Value record(const Tensor& value, std::function<void(const Tensor&)> backward) {
    entries_.push_back({value, {}, std::move(backward)});
    return entries_.size() - 1;
  }

  // Adds one use's share to the gradient of v, after undoing a broadcast.
  void give(Value v, const Tensor& share) {
    Tensor& sum = entries_[v].grad;
    const Tensor fitting = raw::sum_to(share, value(v).sizes());
    sum = sum.defined() ? elementwise(raw::Binary::add, sum, fitting) : fitting;
  }

  static Tensor elementwise(raw::Binary operation, const Tensor& a, const Tensor& b) {
    return raw::binary(operation, a, b, "PlainTape");
  }
  static Tensor product(const Tensor& a, const Tensor& b) {
    require(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0),
            "matmul: " + to_string(a.sizes()) + " and " + to_string(b.sizes()) +
                " do not fit (m, k) x (k, n)");
    const Tensor c = Tensor::empty({a.size(0), b.size(1)}, a.options());
    kernels::matmul(c.device(), matrix(a), matrix(b), matrix(c));
    return c;
  }
  static kernels::Matrix<float> matrix(const Tensor& t) {
    return {t.kernel_data<float>(), t.size(0), t.size(1), t.strides()[0], t.strides()[1]};
  }

  std::vector<TapeEntry> entries_;
  bool walked_ = false;
};

}  // namespace ringsmith
