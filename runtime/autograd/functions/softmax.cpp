// softmax, log_softmax and the losses.
#include "kernels/softmax.hpp"

#include <vector>

#include "kernels/loss.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

using detail::input, detail::output;

namespace {

using kernels::Slices;
using kernels::Targets;
using raw::Binary;
using raw::wide;

Slices slices_of(const Tensor& x, int dim) {
  Slices s{1, x.size(dim), 1};
  for (int d = 0; d < x.dim(); ++d) (d < dim ? s.outer : s.inner) *= d == dim ? 1 : x.size(d);
  return s;
}

// softmax and log_softmax differ only in their kernels.
enum class SoftmaxKind : std::uint8_t { softmax, log_softmax };

Tensor softmax_of(SoftmaxKind kind, const Tensor& given, int dim) {
  const Tensor x = autocast::f32(given);
  const char* name = kind == SoftmaxKind::softmax ? "softmax" : "log_softmax";
  require(x.defined() && x.dim() >= 1, std::string(name) + ": x needs at least one dimension");
  const Tensor in = wide(x.contiguous());
  const Slices slices = slices_of(x, detail::checked_dim(name, x, dim));
  const Tensor wide_y = Tensor::empty(x.sizes(), in.options());
  detail::visit_float_type(name, in.dtype(), [&]<class T>(TypeTag<T>) {
    kind == SoftmaxKind::softmax
        ? kernels::softmax(x.device(), input<T>(in), output<T>(wide_y), slices)
        : kernels::log_softmax(x.device(), input<T>(in), output<T>(wide_y), slices);
  });
  const Tensor y = wide_y.to(x.dtype());
  return record(kind == SoftmaxKind::softmax ? "SoftmaxBackward" : "LogSoftmaxBackward", {x}, y,
                {y}, [kind, slices](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = wide(grad.contiguous()), out = wide(saved[0]);
                  const Tensor dx = Tensor::empty(dy.sizes(), dy.options());
                  detail::visit_float_type("softmax", dy.dtype(), [&]<class T>(TypeTag<T>) {
                    kind == SoftmaxKind::softmax
                        ? kernels::softmax_backward(dy.device(), input<T>(dy), input<T>(out),
                                                    output<T>(dx), slices)
                        : kernels::log_softmax_backward(dy.device(), input<T>(dy), input<T>(out),
                                                        output<T>(dx), slices);
                  });
                  return std::vector<Tensor>{dx.to(grad.dtype())};
                });
}

void check_loss_inputs(const char* name, const Tensor& x, const Tensor& target) {
  require(x.defined() && target.defined() && x.dim() == 2 && x.size(1) > 0 &&
              target.sizes() == Shape{x.size(0)} && target.dtype() == DType::i64,
          std::string(name) + ": expected x (n, classes) and target (n) of i64, got " +
              detail::shape_of(x) + " and " + detail::shape_of(target));
  (void)detail::common_device(name, x, target);
}

template <class T>
std::span<kernels::LogSum<T>> log_sums(const Tensor& t) {
  static_assert(sizeof(kernels::LogSum<T>) == 2 * sizeof(T));
  return {reinterpret_cast<kernels::LogSum<T>*>(t.kernel_data<T>()),
          static_cast<std::size_t>(t.size(0))};
}

// The logits as contiguous rows for a GPU. If x is the first columns of a whole tensor, like the
// logits of a padded vocabulary, the result is the whole tensor, and nothing is copied.
Tensor logit_rows(const Tensor& x) {
  const std::int64_t rows = x.size(0),
                     elements =
                         static_cast<std::int64_t>(x.storage()->size().value / size_of(x.dtype()));
  const std::int64_t width = rows == 0 ? 0 : elements / rows;
  const bool padded = rows > 0 && !x.is_contiguous() && !(x.is_leaf() && x.requires_grad()) &&
                      x.storage_offset() == 0 && elements == rows * width &&
                      x.strides() == Shape{width, 1};
  return padded ? x.detach().as_strided({rows, width}, {width, 1}, 0) : x.contiguous();
}

// True if a node may write its gradient over `saved`, because no other tensor, and no later
// backward, can read that memory.
bool may_overwrite(const Tensor& saved) {
  return !autograd::retains_graph() && saved.storage()->is_owned() &&
         saved.storage().use_count() == 1;
}

// The gradient of cross_entropy from the logits on a GPU, written over the logits if possible. The
// gradient of padding is 0.
template <class T>
Tensor logit_gradient(const Tensor& rows, const Tensor& statistics, const Targets& t,
                      const Tensor& row_grad) {
  using W = kernels::Wide<T>;
  const bool in_place = may_overwrite(rows);
  const Tensor dx = in_place ? rows : Tensor::empty(rows.sizes(), rows.options());
  kernels::cross_entropy_rows_backward(rows.device(), input<T>(rows),
                                       std::span<const kernels::LogSum<W>>(log_sums<W>(statistics)),
                                       t, input<W>(row_grad), output<T>(dx));
  if (in_place) dx.bump_version();
  if (rows.size(1) == t.classes) return dx;
  dx.storage()->set_zero_outside(rows.size(0) * t.classes);
  return dx.slice(1, 0, t.classes);
}

// nll_loss of the log-probabilities `given` or, if through_softmax, cross_entropy of the logits
// `given`. In cross_entropy a GPU never stores log-probabilities: its kernels recompute them from
// the logits. Nor does it convert 16-bit logits: the kernels read and write them, and compute in
// f32, which is the dtype of the loss under autocast.
Tensor likelihood_loss(const char* name, const Tensor& given, const Tensor& target,
                       Reduction reduction, std::int64_t ignore_index, double smoothing,
                       bool through_softmax) {
  const bool direct = through_softmax && given.defined() && given.device().is_cuda() &&
                      is_half(given.dtype()) && autocast_state().enabled;
  const Tensor x = direct ? given : autocast::f32(given);
  check_loss_inputs(name, x, target);
  if (is_half(x.dtype()) && !direct)
    return to(likelihood_loss(name, to(x, DType::f32), target, reduction, ignore_index, smoothing,
                              through_softmax),
              x.dtype());
  const Tensor labels = target.contiguous();
  const bool from_logits = through_softmax && !x.device().is_cpu();
  const Tensor in = from_logits ? logit_rows(x) : x.contiguous();
  const Targets targets{input<std::int64_t>(labels), x.size(1), ignore_index, smoothing};
  kernels::check_targets(x.device(), name, targets);
  const TensorOptions options{direct ? DType::f32 : x.dtype(), x.device()};
  const Tensor kept = through_softmax && !from_logits ? empty_like(in) : in;
  const Tensor statistics = from_logits ? Tensor::empty({x.size(0), 2}, options) : Tensor();
  const Tensor losses = Tensor::empty({x.size(0)}, options);
  const bool whole = reduction != Reduction::none;
  Tensor loss = whole ? Tensor::empty({}, options) : losses;
  const Tensor divisor = whole ? empty_like(loss) : Tensor();
  raw::visit_with_halves(x.dtype(), name, [&]<class T>(TypeTag<T>) {
    using W = kernels::Wide<T>;
    if (from_logits) {
      kernels::cross_entropy_rows(x.device(), input<T>(in), targets, output<W>(losses),
                                  log_sums<W>(statistics));
    } else if constexpr (!kernels::kIsHalf<T>) {
      if (through_softmax)
        kernels::log_softmax(x.device(), input<T>(in), output<T>(kept),
                             Slices{x.size(0), x.size(1), 1});
      kernels::nll_rows(x.device(), input<T>(kept), targets, output<T>(losses));
    }
    if (whole)
      kernels::reduce_losses(x.device(), input<W>(losses), targets, reduction == Reduction::mean,
                             output<W>(loss), output<W>(divisor));
  });
  return record(through_softmax ? "CrossEntropyBackward" : "NllLossBackward", {x}, loss,
                {kept, labels, divisor, statistics},
                [classes = x.size(1), ignore_index, smoothing, through_softmax, name](
                    const Saved& saved, const Tensor& grad) {
                  const Tensor& rows = saved[0];
                  const Targets t{input<std::int64_t>(saved[1]), classes, ignore_index, smoothing};
                  // The gradient of each row's loss: one number for all rows, or one per row.
                  const Tensor g = saved[2].defined()
                                       ? raw::binary(Binary::div, grad, saved[2], name)
                                       : grad.contiguous();
                  Tensor dx;
                  raw::visit_with_halves(rows.dtype(), name, [&]<class T>(TypeTag<T>) {
                    if (saved[3].defined()) {
                      dx = logit_gradient<T>(rows, saved[3], t, g);
                    } else if constexpr (!kernels::kIsHalf<T>) {
                      dx = empty_like(rows);
                      if (through_softmax)
                        kernels::cross_entropy_backward(rows.device(), input<T>(rows), t,
                                                        input<T>(g), output<T>(dx));
                      else
                        kernels::nll_backward(rows.device(), t, input<T>(g), output<T>(dx));
                    }
                  });
                  return std::vector<Tensor>{dx};
                });
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
  const profile::Operation operation("softmax");
  return softmax_of(SoftmaxKind::softmax, x, dim);
}
Tensor log_softmax(const Tensor& x, int dim) {
  const profile::Operation operation("log_softmax");
  return softmax_of(SoftmaxKind::log_softmax, x, dim);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction,
                std::int64_t ignore_index) {
  const profile::Operation operation("nll_loss");
  return likelihood_loss("nll_loss", log_probs, target, reduction, ignore_index, 0, false);
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction,
                     std::int64_t ignore_index, double label_smoothing) {
  const profile::Operation operation("cross_entropy");
  require(
      label_smoothing >= 0 && label_smoothing <= 1,
      "cross_entropy: label_smoothing " + std::to_string(label_smoothing) + " is outside [0, 1]");
  return likelihood_loss("cross_entropy", x, target, reduction, ignore_index, label_smoothing,
                         true);
}

Tensor mse_loss(const Tensor& given_x, const Tensor& given_y, Reduction reduction) {
  const profile::Operation operation("mse_loss");
  const Tensor x = autocast::f32(given_x), y = autocast::f32(given_y);
  require(x.defined() && y.defined() && x.sizes() == y.sizes() && x.dtype() == y.dtype(),
          "mse_loss: x " + detail::shape_of(x) + " and y " + detail::shape_of(y) +
              " must have one shape and dtype");
  (void)detail::common_device("mse_loss", x, y);
  if (is_half(x.dtype()))
    return to(mse_loss(to(x, DType::f32), to(y, DType::f32), reduction), x.dtype());
  const Tensor a = x.contiguous(), b = y.contiguous();
  const double count = reduction == Reduction::mean ? static_cast<double>(x.numel()) : 1.0;
  Tensor loss;
  if (reduction == Reduction::none) {
    const Tensor off = raw::binary(Binary::sub, a, b, "mse_loss");
    loss = raw::binary(Binary::mul, off, off, "mse_loss");
  } else {
    loss = Tensor::empty({}, x.options());
    detail::visit_float_type("mse_loss", x.dtype(), [&]<class T>(TypeTag<T>) {
      kernels::squared_error(x.device(), input<T>(a), input<T>(b), count, output<T>(loss));
    });
  }
  return record(
      "MseLossBackward", {x, y}, loss, {a, b}, [count](const Saved& saved, const Tensor& grad) {
        const auto wanted = [&](std::size_t i) {
          return saved.needs(i) ? Tensor::empty(saved[0].sizes(), grad.options()) : Tensor();
        };
        const Tensor dx = wanted(0), dy = wanted(1), g = grad.contiguous();
        detail::visit_float_type("mse_loss", grad.dtype(), [&]<class T>(TypeTag<T>) {
          kernels::squared_error_backward(grad.device(), input<T>(saved[0]), input<T>(saved[1]),
                                          static_cast<T>(2.0 / count), input<T>(g), output<T>(dx),
                                          output<T>(dy));
        });
        return std::vector<Tensor>{dx, dy};
      });
}

}  // namespace ringsmith
