#include "runtime/optim/sgd.hpp"

#include <utility>

#include "kernels/optim.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {
namespace {
constexpr std::size_t kMomentum = 0;
}

SGD::SGD(std::vector<Tensor> params, SGDOptions options)
    : Optimizer(std::move(params), options.lr, {"momentum_buffer"}), options_(options) {
  require(options.momentum >= 0,
          "SGD: momentum must not be negative, got " + std::to_string(options.momentum));
  require(options.weight_decay >= 0,
          "SGD: weight decay must not be negative, got " + std::to_string(options.weight_decay));
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "SGD: Nesterov momentum requires a momentum and zero dampening");
}

void SGD::update(std::size_t i, const Tensor& param, const Tensor& grad, std::int64_t /*steps*/) {
  kernels::SgdStep step;
  step.lr = lr();
  step.momentum = options_.momentum;
  step.dampening = options_.dampening;
  step.weight_decay = options_.weight_decay;
  step.nesterov = options_.nesterov;
  step.first = !has_state(kMomentum, i);
  const auto run = [&]<class T>(TypeTag<T>) {
    kernels::sgd(param.device(), param.kernel_span<T>(), grad.kernel_span<T>(),
                 options_.momentum != 0 ? state(kMomentum, i).kernel_span<T>() : std::span<T>{},
                 step);
  };
  param.dtype() == DType::f64 ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

}  // namespace ringsmith
