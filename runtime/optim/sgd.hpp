// Stochastic gradient descent with momentum, as torch.optim.SGD.
//
//   d   = g + weight_decay p
//   buf = momentum buf + (1 - dampening) d      the first time buf = d
//   p  -= lr (nesterov ? d + momentum buf : buf)
#pragma once

#include "runtime/optim/optimizer.hpp"

namespace ringsmith {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class SGD : public Optimizer {
 public:
  // UsageError if an option is negative, or nesterov goes without momentum or with dampening.
  SGD(std::vector<Tensor> params, SGDOptions options);

 private:
  void update(std::size_t i, const Tensor& param, const Tensor& grad, std::int64_t steps) override;
  SGDOptions options_;
};

}  // namespace ringsmith
