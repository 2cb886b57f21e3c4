// wrong: mistakes that autograd refuses, and two mistakes that it cannot detect.
#include <cstdio>
#include <functional>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

Tensor learned(double value) { return scalar(value).requires_grad_(); }

void attempt(const char* what, const std::function<void()>& act) {
  try {
    act();
    std::printf("%s: accepted\n", what);
  } catch (const Error& error) {
    std::printf("%s: %s\n", what, error.what());
  }
}

int main() {
  const Tensor w = learned(3);
  const Tensor loss = w * w * w;
  loss.backward();
  std::printf("gradient of w: %g\n", w.grad().item<float>());
  attempt("a second backward", [&] { loss.backward(); });
  std::printf("gradient of w: %g\n", w.grad().item<float>());

  attempt("backward of a vector", [] { (ones({3}).requires_grad_() * 2.0).backward(); });
  attempt("backward without anything to learn", [] { (scalar(2) * scalar(3)).backward(); });
  attempt("written to after forward", [&] {
    const Tensor square = w * w;
    {
      const NoGradGuard no_grad;
      w.fill_(5);
    }
    square.backward();
  });

  (learned(1) * w).backward();  // the gradient was never reset
  std::printf("after one more backward, without zero_grad: %g, and d(w)/dw would be 1\n",
              w.grad().item<float>());
  const Tensor unused = learned(1);
  int fired = 0;
  register_post_accumulate_grad_hook(unused, [&](const Tensor&) { ++fired; });
  (w * w).backward();
  std::printf("unused: gradient %s, its hook fired %d times\n",
              unused.grad().defined() ? "0" : "none", fired);
}
