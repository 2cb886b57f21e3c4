// ready: the time at which each layer's gradient is complete. Six layers, a hook on each weight.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

// Processor time of this thread, in milliseconds, without the time that other programs take.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

int main() {
  kernels::set_threads(1);  // so that this thread does all of the work
  const int layers = 6, steps = 20;
  MLP model({384, 384, 384, 384, 384, 384, 384});
  std::vector<std::vector<double>> ready(layers);
  std::vector<double> forward, backward;
  double begin = 0;
  int layer = 0;
  for (const auto& [name, parameter] : model.named_parameters())
    if (name.ends_with("weight"))
      register_post_accumulate_grad_hook(parameter, [&ready, &begin, n = layer++](const Tensor&) {
        ready[std::size_t(n)].push_back(now() - begin);
      });
  const Tensor x = randn({128, 384});
  for (int step = 0; step < steps; ++step) {
    model.zero_grad();
    begin = now();
    const Tensor loss = mean(model(x));
    forward.push_back(now() - begin);
    begin = now();
    loss.backward();
    backward.push_back(now() - begin);
  }
  // The fastest step, because its caches were disturbed least.
  const auto fastest = std::min_element(backward.begin(), backward.end()) - backward.begin();
  const auto best = std::size_t(fastest);
  std::printf("forward   %7.2f ms\n", *std::min_element(forward.begin(), forward.end()));
  for (int n = layers - 1; n >= 0; --n)
    std::printf("layer %d   %7.2f ms after the start of backward\n", n,
                ready[std::size_t(n)][best]);
  std::printf("backward  %7.2f ms\n", backward[best]);
}
