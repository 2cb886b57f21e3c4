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

// The type of y: that of a product's operands, if y is lowered under autocast; otherwise that of x.
DType result_type(const Tensor& x, NormResult result) {
  const AutocastState state = autocast_state();
  const bool lowers = result == NormResult::lowered && state.enabled && x.dtype() == DType::f32;
  return lowers ? state.dtype : x.dtype();
}

TensorOptions wide_options(const Tensor& x) {
  return {is_half(x.dtype()) ? DType::f32 : x.dtype(), x.device()};
}

// Returns the operand in a type that the device's kernel takes. CPU kernels take no 16-bit types.
Tensor kernel_operand(const Tensor& t) { return t.defined() && t.device().is_cpu() ? wide(t) : t; }

struct NormGrads {
  Tensor bias, weight, x;
};
// Memory for those gradients that are needed, in the shape of x.
NormGrads norm_grads(const Saved& saved, const Tensor& x, TensorOptions options, bool needs_x) {
  const auto wanted = [&](bool needed, const Shape& sizes) {
    return needed ? Tensor::empty(sizes, options) : Tensor();
  };
  const Shape vector{x.size(-1)};
  return {wanted(saved.needs(0), vector), wanted(saved.needs(1), vector),
          wanted(needs_x, x.sizes())};
}

NormGrads backward_of_norm(const Saved& saved, const Tensor& given_dy, bool needs_x) {
  const Tensor dy = kernel_operand(given_dy.contiguous()), x = kernel_operand(saved[0]);
  const Tensor &weight = saved[1], &mean = saved[2], &rstd = saved[3];
  const NormGrads g = norm_grads(saved, x, x.options(), needs_x);
  if (dy.dtype() != x.dtype()) {
    raw::visit_half(dy.dtype(), "layer_norm", [&]<class H>(TypeTag<H>) {
      kernels::layer_norm_lowered_backward(
          dy.device(), input<H>(dy), input<float>(x), input<float>(weight), input<float>(mean),
          input<float>(rstd), output<float>(g.x), output<float>(g.weight), output<float>(g.bias));
    });
    return g;
  }
  raw::visit_with_halves(dy.dtype(), "layer_norm", [&]<class T>(TypeTag<T>) {
    using W = kernels::Wide<T>;
    kernels::layer_norm_backward(dy.device(), input<T>(dy), input<T>(x), input<T>(weight),
                                 input<W>(mean), input<W>(rstd), output<T>(g.x),
                                 output<T>(g.weight), output<T>(g.bias));
  });
  return g;
}

}  // namespace

Tensor layer_norm(const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias,
                  double eps, NormResult result) {
  const Tensor x = autocast::f32(given_x), weight = autocast::f32(given_weight),
               bias = autocast::f32(given_bias);
  if (x.defined() && x.device().is_cpu() && result == NormResult::lowered)
    return autocast::lower(layer_norm(x, weight, bias, eps));
  const profile::Operation operation("layer_norm");
  check_layer_norm(x, weight, bias);
  const Device device = detail::common_device("layer_norm", x, weight, bias);
  const Tensor kept = x.contiguous(), in = kernel_operand(kept);
  const Tensor scale = weight.defined() ? kernel_operand(weight.contiguous()) : Tensor();
  const Tensor shift = bias.defined() ? kernel_operand(bias.contiguous()) : Tensor();
  const DType y_type = result_type(in, result);
  Tensor y = Tensor::empty(x.sizes(), {y_type, device});
  const Tensor mean = Tensor::empty({x.numel() / x.size(-1)}, wide_options(in)),
               rstd = empty_like(mean);
  if (y_type != in.dtype()) {
    raw::visit_half(y_type, "layer_norm", [&]<class H>(TypeTag<H>) {
      kernels::layer_norm_lowered(device, input<float>(in), input<float>(scale),
                                  input<float>(shift), eps, output<H>(y), output<float>(mean),
                                  output<float>(rstd));
    });
  } else {
    raw::visit_with_halves(in.dtype(), "layer_norm", [&]<class T>(TypeTag<T>) {
      using W = kernels::Wide<T>;
      kernels::layer_norm(device, input<T>(in), input<T>(scale), input<T>(shift), eps, output<T>(y),
                          output<W>(mean), output<W>(rstd));
    });
  }
  if (is_half(x.dtype())) y = y.to(x.dtype());
  // The bias comes before the weight, as in linear.
  return record("LayerNormBackward", {bias, weight, x}, y, {kept, scale, mean, rstd},
                [dtype = x.dtype()](const Saved& saved, const Tensor& grad) {
                  const NormGrads g = backward_of_norm(saved, grad, saved.needs(2));
                  std::vector<Tensor> grads{g.bias, g.weight, g.x};
                  for (Tensor& t : grads)
                    if (t.defined()) t = t.to(dtype);
                  return grads;
                });
}

namespace {

// Gradients of (bias, weight, x, residual), given the gradients of the sum and of its
// normalisation. Either of the two given gradients may be undefined.
class AddLayerNormBackward : public Node {
 public:
  AddLayerNormBackward(const Tensor& sum, const Tensor& weight, const Tensor& mean,
                       const Tensor& rstd, DType residual)
      : saved_{SavedTensor(sum), SavedTensor(weight), SavedTensor(mean), SavedTensor(rstd)},
        residual_(residual) {}

  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    const Saved saved(*this, saved_);
    const Tensor& dsum = grads[0];
    const auto of_residual = [&](const Tensor& dx) {
      return saved.needs(3) && dx.defined() ? dx.to(residual_) : Tensor();
    };
    if (!grads[1].defined()) return {Tensor(), Tensor(), dsum, of_residual(dsum)};
    const bool needs_x = saved.needs(2) || saved.needs(3);
    if (!dsum.defined()) {
      const NormGrads g = backward_of_norm(saved, grads[1], needs_x);
      return {g.bias, g.weight, g.x, of_residual(g.x)};
    }
    const Tensor dy = grads[1].contiguous(), also = dsum.contiguous();
    const NormGrads g = norm_grads(saved, dy, also.options(), needs_x);
    const bool rounded = saved.needs(3) && residual_ != also.dtype();
    const Tensor dresidual =
        rounded ? Tensor::empty(dy.sizes(), {residual_, dy.device()}) : Tensor();
    if (dy.dtype() != also.dtype())
      raw::visit_half(dy.dtype(), "layer_norm", [&]<class H>(TypeTag<H>) {
        kernels::add_layer_norm_lowered_backward(dy.device(), input<H>(dy), input<float>(also),
                                                 input<float>(saved[0]), input<float>(saved[1]),
                                                 input<float>(saved[2]), input<float>(saved[3]),
                                                 output<float>(g.x), output<H>(dresidual),
                                                 output<float>(g.weight), output<float>(g.bias));
      });
    else
      detail::visit_float_type("layer_norm", dy.dtype(), [&]<class T>(TypeTag<T>) {
        kernels::add_layer_norm_backward(dy.device(), input<T>(dy), input<T>(also),
                                         input<T>(saved[0]), input<T>(saved[1]), input<T>(saved[2]),
                                         input<T>(saved[3]), output<T>(g.x), output<T>(g.weight),
                                         output<T>(g.bias));
      });
    return {g.bias, g.weight, g.x, rounded ? dresidual : g.x};
  }
  [[nodiscard]] std::string name() const override { return "AddLayerNormBackward"; }
  void release() override {
    for (SavedTensor& t : saved_) t.release();
  }

 private:
  std::vector<SavedTensor> saved_;
  DType residual_;
};

}  // namespace

AddNorm add_layer_norm(const Tensor& given_x, const Tensor& given_residual,
                       const Tensor& given_weight, const Tensor& given_bias, double eps,
                       NormResult result) {
  // Fused only on GPUs, because a CPU reads the sum from its cache anyway. If shapes or dtypes
  // differ, add() broadcasts and widens.
  const auto fits = [&] {
    return given_x.defined() && given_residual.defined() && given_x.device().is_cuda() &&
           given_x.sizes() == given_residual.sizes() && !is_half(given_x.dtype()) &&
           (given_residual.dtype() == given_x.dtype() || is_half(given_residual.dtype()));
  };
  if (!fits()) {
    const Tensor sum = given_x + given_residual;
    return {sum, layer_norm(sum, given_weight, given_bias, eps, result)};
  }
  const profile::Operation operation("add_layer_norm");
  const Tensor& x = given_x;
  const Tensor weight = autocast::f32(given_weight), bias = autocast::f32(given_bias);
  const DType y_type = result_type(x, result);
  // The kernel takes a 16-bit residual if y has its type, too. A leaf's gradient goes through to().
  const bool lowered = y_type != x.dtype() && y_type == given_residual.dtype() &&
                       !(given_residual.is_leaf() && given_residual.requires_grad());
  const Tensor residual = lowered ? given_residual : to(given_residual, x.dtype());
  check_layer_norm(x, weight, bias);
  const Device device = detail::common_device("layer_norm", x, residual, weight, bias);
  const Tensor in = x.contiguous(), added = residual.contiguous();
  const Tensor scale = weight.defined() ? weight.contiguous() : Tensor();
  const Tensor shift = bias.defined() ? bias.contiguous() : Tensor();
  AddNorm out{Tensor::empty(x.sizes(), x.options()),
              Tensor::empty(x.sizes(), {lowered ? y_type : x.dtype(), device})};
  const Tensor mean = Tensor::empty({x.numel() / x.size(-1)}, x.options()), rstd = empty_like(mean);
  if (lowered)
    raw::visit_half(y_type, "layer_norm", [&]<class H>(TypeTag<H>) {
      kernels::add_layer_norm_lowered(
          device, input<float>(in), input<H>(added), input<float>(scale), input<float>(shift), eps,
          output<float>(out.sum), output<H>(out.normed), output<float>(mean), output<float>(rstd));
    });
  else
    detail::visit_float_type("layer_norm", x.dtype(), [&]<class T>(TypeTag<T>) {
      kernels::add_layer_norm(device, input<T>(in), input<T>(added), input<T>(scale),
                              input<T>(shift), eps, output<T>(out.sum), output<T>(out.normed),
                              output<T>(mean), output<T>(rstd));
    });
  const std::vector<Tensor> inputs{bias, weight, x, residual};
  if (needs_graph(inputs)) {
    const auto node =
        std::make_shared<AddLayerNormBackward>(out.sum, scale, mean, rstd, residual.dtype());
    connect(node, inputs, out.sum, 0);
    connect(node, inputs, out.normed, 1);
  }
  if (result == NormResult::lowered) out.normed = autocast::lower(out.normed);
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
