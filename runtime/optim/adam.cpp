#include "runtime/optim/adam.hpp"

#include "kernels/optim.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {
namespace {
constexpr std::size_t kMean = 0;
constexpr std::size_t kSquare = 1;
constexpr std::size_t kLargest = 2;
}  // namespace

Adam::Adam(std::vector<Tensor> params, AdamOptions options, bool decoupled)
    : Optimizer(std::move(params), options.lr, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
      options_(options),
      decoupled_(decoupled) {
  for (const double beta : {options.beta1, options.beta2})
    require(beta >= 0 && beta < 1, "Adam: betas must be in [0, 1), got " + std::to_string(beta));
  require(options.eps >= 0, "Adam: eps must not be negative, got " + std::to_string(options.eps));
  require(options.weight_decay >= 0,
          "Adam: weight decay must not be negative, got " + std::to_string(options.weight_decay));
}

void Adam::update(std::size_t i, const Tensor& param, const Tensor& grad, std::int64_t steps) {
  kernels::AdamStep step;
  step.lr = lr();
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.eps = options_.eps;
  step.weight_decay = options_.weight_decay;
  step.decoupled = decoupled_;
  step.t = steps;
  const auto run = [&]<class T>(TypeTag<T>) {
    kernels::adam(param.device(), param.kernel_span<T>(), grad.kernel_span<T>(),
                  state(kMean, i).kernel_span<T>(), state(kSquare, i).kernel_span<T>(),
                  options_.amsgrad ? state(kLargest, i).kernel_span<T>() : std::span<T>{}, step);
  };
  param.dtype() == DType::f64 ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

}  // namespace ringsmith
