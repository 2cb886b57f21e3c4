// by_hand: loss = (w x + b)^2 w, its gradients by the tape, and the gradients of three ranks.
#include <cstdio>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

float number(const Tensor& t) { return t.defined() ? t.item<float>() : 0.0F; }

// Makes a leaf for which backward computes a gradient.
Tensor learned(double value) { return scalar(value).requires_grad_(); }

Tensor loss_of(const Tensor& w, const Tensor& b, const Tensor& x, bool show) {
  const Tensor p = w * x;
  const Tensor h = p + b;
  const Tensor s = h * h;
  const Tensor loss = s * w;
  if (show) {
    std::printf("forward\n  p = w x     %4g\n  h = p + b   %4g\n", number(p), number(h));
    std::printf("  s = h h     %4g\n  loss = s w  %4g\n", number(s), number(loss));
  }
  return loss;
}

int main() {
  const Tensor w = learned(3), b = learned(1), x = learned(2);
  const auto announce = [](const char* name) {
    return [name](const Tensor& leaf) {
      std::printf("  %s is complete: gradient %g\n", name, number(leaf.grad()));
    };
  };
  register_post_accumulate_grad_hook(w, announce("w"));
  register_post_accumulate_grad_hook(b, announce("b"));
  register_post_accumulate_grad_hook(x, announce("x"));
  const Tensor loss = loss_of(w, b, x, true);
  std::printf("backward\n");
  loss.backward();

  std::printf("compared with differences of 1/64, in double precision\n");
  const auto value = [](double ww, double bb, double xx) {
    return (ww * xx + bb) * (ww * xx + bb) * ww;
  };
  const double e = 1.0 / 64;
  std::printf("  w %.3f  b %.3f  x %.3f\n", (value(3 + e, 1, 2) - value(3 - e, 1, 2)) / (2 * e),
              (value(3, 1 + e, 2) - value(3, 1 - e, 2)) / (2 * e),
              (value(3, 1, 2 + e) - value(3, 1, 2 - e)) / (2 * e));

  std::printf("three ranks, the same w and b, an x each\n");
  Tensor total = scalar(0);
  const Tensor shared_w = learned(3), shared_b = learned(1);
  for (int rank = 0; rank < 3; ++rank) {
    const Tensor own_w = learned(3), own_b = learned(1), own_x = scalar(rank);
    loss_of(own_w, own_b, own_x, false).backward();
    std::printf("  rank %d, x = %d: w %4g  b %4g\n", rank, rank, number(own_w.grad()),
                number(own_b.grad()));
    total = total + loss_of(shared_w, shared_b, own_x, false);
  }
  total.backward();
  std::printf("  one process, the sum of the three losses: w %g  b %g\n", number(shared_w.grad()),
              number(shared_b.grad()));
}
