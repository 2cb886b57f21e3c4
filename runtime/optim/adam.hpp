// Adam (Kingma and Ba, 2014) and AdamW (Loshchilov and Hutter, 2017), as torch.optim.
//
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g g
//   p -= lr / (1 - beta1^t)  m / (sqrt(v / (1 - beta2^t)) + eps)
//
// Adam adds weight_decay p to g, so that decay is scaled by the adaptive step as well; AdamW
// shrinks p by lr weight_decay instead. amsgrad divides by the largest v so far.
#pragma once

#include <utility>

#include "runtime/optim/optimizer.hpp"

namespace ringsmith {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // AdamW's usual value is 1e-2
  bool amsgrad = false;
};

class Adam : public Optimizer {
 public:
  // UsageError if a beta is outside [0, 1), or eps or weight_decay is negative.
  Adam(std::vector<Tensor> params, AdamOptions options) : Adam(std::move(params), options, false) {}

 protected:
  Adam(std::vector<Tensor> params, AdamOptions options, bool decoupled);

 private:
  void update(std::size_t i, const Tensor& param, const Tensor& grad, std::int64_t steps) override;
  AdamOptions options_;
  bool decoupled_;
};

class AdamW : public Adam {
 public:
  AdamW(std::vector<Tensor> params, AdamOptions options) : Adam(std::move(params), options, true) {}
};

}  // namespace ringsmith
