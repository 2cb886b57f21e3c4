// Lab 04, part 4: one training step, in one process. Chapter 09 runs N of these in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "layers.hpp"
#include "loss.hpp"
#include "optim.hpp"

namespace lab04 {

// Task 6. Processes one batch: forward, loss, backward, update. Returns the loss before the update.
// Gradients of earlier batches must not contribute. Optimizer is Sgd or AdamW.
template <class Optimizer>
float train_step(MLP& model, Optimizer& optimizer, const Matrix& x,
                 const std::vector<std::int64_t>& targets) {
#ifdef SOLUTION
  zero_grad(optimizer.parameters());
  const Loss loss = cross_entropy(model.forward(x), targets);
  model.backward(loss.grad);
  optimizer.step();
  return loss.value;
#else
  (void)model, (void)optimizer, (void)x, (void)targets;
  kit::todo("task 6, train_step");
#endif
}

}  // namespace lab04
