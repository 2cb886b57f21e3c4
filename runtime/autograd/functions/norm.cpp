// layer_norm over the last dimension, batch_norm over all dimensions except the channels.

#include <memory>
#include <vector>

#include "kernels/batchnorm.hpp"
#include "kernels/layernorm.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

using detail::input, detail::output, detail::wide;

namespace {

void check_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(x.defined() && x.dim() >= 1 && x.size(-1) > 0,
          "layer_norm: x needs a last dimension to normalise, got " + detail::shape_of(x));
  for (const Tensor& t : {weight, bias})
    require(
        !t.defined() || (t.sizes() == Shape{x.size(-1)} && t.dtype() == x.dtype()),
        "layer_norm: weight " + detail::shape_of(weight) + " and bias " + detail::shape_of(bias) +
            " must have x's dtype and the size of the last dimension of x " + to_string(x.sizes()));
}

}  // namespace

Tensor layer_norm(const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias,
                  double eps) {
  const profile::Operation operation("layer_norm");
  const Tensor x = autocast::f32(given_x), weight = autocast::f32(given_weight),
               bias = autocast::f32(given_bias);
  check_layer_norm(x, weight, bias);
  const Device device = detail::common_device("layer_norm", x, weight, bias);
  const Tensor kept = x.contiguous(), in = wide(kept);
  const Tensor scale = weight.defined() ? wide(weight.contiguous()) : Tensor();
  const Tensor shift = bias.defined() ? wide(bias.contiguous()) : Tensor();
  const std::int64_t rows = x.numel() / x.size(-1);
  Tensor y = Tensor::empty(x.sizes(), in.options());
  const Tensor mean = Tensor::empty({rows}, in.options()), rstd = empty_like(mean);
  const auto visit = [](const Tensor& t, const auto& f) {
    detail::visit_float_type("layer_norm", t.dtype(), f);
  };
  visit(in, [&]<class T>(TypeTag<T>) {
    kernels::layer_norm(device, input<T>(in), input<T>(scale), input<T>(shift), eps, output<T>(y),
                        output<T>(mean), output<T>(rstd));
  });
  // The bias comes before the weight, as in linear.
  return record("LayerNormBackward", {bias, weight, x}, y.to(x.dtype()), {kept, scale, mean, rstd},
                [visit](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = wide(grad.contiguous()), rows_in = wide(saved[0]);
                  const Shape vector = {dy.size(-1)};
                  std::vector<Tensor> grads(3);
                  for (std::size_t i = 0; i < 3; ++i)
                    if (saved.needs(i))
                      grads[i] = Tensor::empty(i == 2 ? dy.sizes() : vector, dy.options());
                  visit(dy, [&]<class T>(TypeTag<T>) {
                    kernels::layer_norm_backward(dy.device(), input<T>(dy), input<T>(rows_in),
                                                 input<T>(saved[1]), input<T>(saved[2]),
                                                 input<T>(saved[3]), output<T>(grads[2]),
                                                 output<T>(grads[1]), output<T>(grads[0]));
                  });
                  for (Tensor& g : grads)
                    if (g.defined()) g = g.to(grad.dtype());
                  return grads;
                });
}

namespace {

// Gradients of (bias, weight, x, residual), given the gradients of the sum and of its
// normalisation. Either of the two given gradients may be undefined.
class AddLayerNormBackward : public Node {
 public:
  AddLayerNormBackward(const Tensor& sum, const Tensor& weight, const Tensor& mean,
                       const Tensor& rstd)
      : saved_{SavedTensor(sum), SavedTensor(weight), SavedTensor(mean), SavedTensor(rstd)} {}

  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    const Saved saved(*this, saved_);
    const Tensor& dsum = grads[0];
    if (!grads[1].defined()) return {Tensor(), Tensor(), dsum, dsum};
    const Tensor dy = grads[1].contiguous();
    const Tensor also = dsum.defined() ? dsum.contiguous() : dsum;
    const auto wanted = [&](bool needed, const Shape& sizes) {
      return needed ? Tensor::empty(sizes, dy.options()) : Tensor();
    };
    const Tensor dbias = wanted(saved.needs(0), {dy.size(-1)});
    const Tensor dweight = wanted(saved.needs(1), {dy.size(-1)});
    const Tensor dx = wanted(saved.needs(2) || saved.needs(3), dy.sizes());
    detail::visit_float_type("layer_norm", dy.dtype(), [&]<class T>(TypeTag<T>) {
      const std::span<const T> sum = input<T>(saved[0]), weight = input<T>(saved[1]),
                               mean = input<T>(saved[2]), rstd = input<T>(saved[3]);
      if (also.defined())
        kernels::add_layer_norm_backward(dy.device(), input<T>(dy), input<T>(also), sum, weight,
                                         mean, rstd, output<T>(dx), output<T>(dweight),
                                         output<T>(dbias));
      else
        kernels::layer_norm_backward(dy.device(), input<T>(dy), sum, weight, mean, rstd,
                                     output<T>(dx), output<T>(dweight), output<T>(dbias));
    });
    return {dbias, dweight, dx, dx};
  }
  [[nodiscard]] std::string name() const override { return "AddLayerNormBackward"; }
  void release() override {
    for (SavedTensor& t : saved_) t.release();
  }

 private:
  std::vector<SavedTensor> saved_;
};

}  // namespace

AddNorm add_layer_norm(const Tensor& given_x, const Tensor& given_residual,
                       const Tensor& given_weight, const Tensor& given_bias, double eps) {
  // Fused only on GPUs, because a CPU reads the sum from its cache anyway. If shapes or dtypes
  // differ, add() broadcasts and widens.
  const auto fits = [&] {
    return given_x.defined() && given_residual.defined() && given_x.device().is_cuda() &&
           given_x.sizes() == given_residual.sizes() && !is_half(given_x.dtype()) &&
           (given_residual.dtype() == given_x.dtype() || is_half(given_residual.dtype()));
  };
  if (!fits()) {
    const Tensor sum = given_x + given_residual;
    return {sum, layer_norm(sum, given_weight, given_bias, eps)};
  }
  const profile::Operation operation("add_layer_norm");
  const Tensor& x = given_x;
  const Tensor residual = to(given_residual, x.dtype());
  const Tensor weight = autocast::f32(given_weight), bias = autocast::f32(given_bias);
  check_layer_norm(x, weight, bias);
  const Device device = detail::common_device("layer_norm", x, residual, weight, bias);
  const Tensor in = x.contiguous(), added = residual.contiguous();
  const Tensor scale = weight.defined() ? weight.contiguous() : Tensor();
  const Tensor shift = bias.defined() ? bias.contiguous() : Tensor();
  AddNorm out{Tensor::empty(x.sizes(), x.options()), Tensor::empty(x.sizes(), x.options())};
  const Tensor mean = Tensor::empty({x.numel() / x.size(-1)}, x.options()), rstd = empty_like(mean);
  detail::visit_float_type("layer_norm", x.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::add_layer_norm(device, input<T>(in), input<T>(added), input<T>(scale), input<T>(shift),
                            eps, output<T>(out.sum), output<T>(out.normed), output<T>(mean),
                            output<T>(rstd));
  });
  const std::vector<Tensor> inputs{bias, weight, x, residual};
  if (needs_graph(inputs)) {
    const auto node = std::make_shared<AddLayerNormBackward>(out.sum, scale, mean, rstd);
    connect(node, inputs, out.sum, 0);
    connect(node, inputs, out.normed, 1);
  }
  return out;
}

// ---- batch_norm: x (n, c) or (n, c, h, w) ----
// Running statistics are updated in place in training:
//
//   running = (1 - momentum) * running + momentum * batch      var unbiased (divisor N - 1) here

namespace {

using kernels::BatchNormShape;

BatchNormShape checked(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var, bool training) {
  require(x.defined() && (x.dim() == 2 || x.dim() == 4),
          "batch_norm: x must be (n, channels) or (n, channels, height, width), got " +
              detail::shape_of(x));
  const BatchNormShape s{x.size(0), x.size(1), x.dim() == 4 ? x.size(2) * x.size(3) : 1};
  const DType dtype = is_half(x.dtype()) ? DType::f32 : x.dtype();
  const auto vector = [&](const char* name, const Tensor& t) {
    require(t.defined() && t.sizes() == Shape{s.c} && t.dtype() == dtype,
            std::string("batch_norm: ") + name + " must hold " + std::to_string(s.c) +
                " values of x's dtype (f32 for a 16-bit x), one for each channel of x " +
                to_string(x.sizes()) + ", got " + detail::shape_of(t));
  };
  vector("weight", weight);
  vector("bias", bias);
  vector("running_mean", running_mean);
  vector("running_var", running_var);
  (void)detail::common_device("batch_norm", x, weight, bias, running_mean, running_var);
  require(running_mean.is_contiguous() && running_var.is_contiguous(),
          "batch_norm: the running statistics are updated in place and must be contiguous");
  require(
      !training || s.per_channel() > 1,
      "batch_norm: training needs more than one value per channel, got x " + to_string(x.sizes()));
  return s;
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum, double eps) {
  const profile::Operation operation("batch_norm");
  const BatchNormShape s = checked(x, weight, bias, running_mean, running_var, training);
  const Tensor kept = x.contiguous(), image = wide(kept);
  const Tensor scale = weight.contiguous(), shift = bias.contiguous();
  Tensor y = Tensor::empty(x.sizes(), image.options());
  const Tensor mean = Tensor::empty({s.c}, image.options()), inv_std = empty_like(mean);
  detail::visit_float_type("batch_norm", image.dtype(), [&]<class T>(TypeTag<T>) {
    double count = 1;  // divisor of inv_std, which initially contains squares or a variance
    if (training) {
      count = static_cast<double>(s.per_channel());
      kernels::batch_stats(x.device(), s, input<T>(image), output<T>(mean), output<T>(inv_std));
      kernels::update_running(x.device(), output<T>(running_mean), output<T>(running_var),
                              input<T>(mean), input<T>(inv_std), count, momentum);
      running_mean.bump_version();
      running_var.bump_version();
    } else {
      mean.copy_(running_mean);
      inv_std.copy_(running_var);
    }
    kernels::inverse_std(x.device(), output<T>(inv_std), count, eps);
    kernels::batch_norm(x.device(), s, input<T>(image), input<T>(mean), input<T>(inv_std),
                        input<T>(scale), input<T>(shift), output<T>(y));
  });
  return record(
      "BatchNormBackward", {x, weight, bias}, y.to(x.dtype()), {kept, scale, mean, inv_std},
      [s, training](const Saved& saved, const Tensor& grad) {
        const Tensor dy = wide(grad.contiguous()), images = wide(saved[0]);
        const Tensor dx = Tensor::empty(images.sizes(), dy.options());
        const Tensor dweight = Tensor::empty({s.c}, dy.options());
        const Tensor dbias = Tensor::empty({s.c}, dy.options());
        detail::visit_float_type("batch_norm", dy.dtype(), [&]<class T>(TypeTag<T>) {
          kernels::batch_norm_grad(dy.device(), s, input<T>(dy), input<T>(images),
                                   input<T>(saved[2]), input<T>(saved[3]), input<T>(saved[1]),
                                   training, output<T>(dx), output<T>(dweight), output<T>(dbias));
        });
        return std::vector<Tensor>{dx.to(grad.dtype()), dweight, dbias};
      });
}

}  // namespace ringsmith
