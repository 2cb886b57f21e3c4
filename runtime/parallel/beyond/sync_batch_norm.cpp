#include "runtime/parallel/beyond/sync_batch_norm.hpp"

#include <numeric>

#include "kernels/batchnorm.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/nn/layers.hpp"

namespace ringsmith {

namespace {

using detail::input, detail::output;
using kernels::BatchNormShape;

BatchNormShape shape_of(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& running_mean, const Tensor& running_var) {
  require(x.defined() && (x.dim() == 2 || x.dim() == 4),
          "sync_batch_norm: x must be (n, channels) or (n, channels, height, width), got " +
              detail::shape_of(x));
  for (const Tensor& t : {weight, bias, running_mean, running_var})
    require(t.defined() && t.sizes() == Shape{x.size(1)} && t.dtype() == x.dtype(),
            "sync_batch_norm: weight, bias and running statistics must hold one value of x's dtype "
            "for each channel of x " +
                to_string(x.sizes()) + ", got " + detail::shape_of(t));
  (void)detail::common_device("sync_batch_norm", x, weight, bias, running_mean, running_var);
  return {x.size(0), x.size(1), x.dim() == 4 ? x.size(2) * x.size(3) : 1};
}

struct Statistics {
  double count = 0;
  std::vector<double> mean, squares;  // by channel; sum of the squared deviations from the mean
};

// Collective. mean and squares describe this rank's batch; they are ignored if count is 0.
Statistics gather(comm::ProcessGroup& group, double count, const std::vector<double>& mean,
                  const std::vector<double>& squares) {
  const std::size_t channels = mean.size();
  std::vector<double> mine{count};
  mine.insert(mine.end(), mean.begin(), mean.end());
  mine.insert(mine.end(), squares.begin(), squares.end());
  std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const double>(mine), std::span<double>(all));

  Statistics out{0, std::vector<double>(channels), std::vector<double>(channels)};
  const auto each_rank = [&](const auto& f) {  // f(count, its means, its squares)
    for (std::size_t r = 0; r < all.size(); r += mine.size())
      if (all[r] > 0) f(all[r], &all[r + 1], &all[r + 1 + channels]);
  };
  each_rank([&](double n, const double*, const double*) { out.count += n; });
  for (std::size_t c = 0; c < channels; ++c) {
    each_rank(
        [&](double n, const double* m, const double*) { out.mean[c] += n / out.count * m[c]; });
    each_rank([&](double n, const double* m, const double* s) {
      out.squares[c] += s[c] + n * (m[c] - out.mean[c]) * (m[c] - out.mean[c]);
    });
  }
  return out;
}

std::vector<double> doubles(const Tensor& t) { return t.to(DType::f64).to_vector<double>(); }
Tensor tensor_like(const Tensor& like, const std::vector<double>& values) {
  return from_vector(values).to(like.dtype()).to(like.device());
}

// Collective. Returns the sum of t over the ranks, computed in f64.
Tensor summed(comm::ProcessGroup& group, const Tensor& t) {
  std::vector<double> values = doubles(t);
  group.all_reduce(std::span<double>(values));
  return from_vector(values);
}

// dx = inv_std weight (dy - sum / N - xhat dot / N), with the sums over all ranks.
std::vector<Tensor> backward(comm::ProcessGroup& group, const BatchNormShape& s, double count,
                             const Saved& saved, const Tensor& dy) {
  const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inv_std = saved[3];
  const TensorOptions options = dy.options();
  const Tensor dx = Tensor::empty(x.sizes(), options);
  const Tensor sum = zeros({s.c}, options), dot = zeros({s.c}, options);
  const auto visit = [&](const auto& f) {
    detail::visit_float_type("sync_batch_norm", dy.dtype(), f);
  };
  if (s.n > 0)  // the gradient as if the statistics were constant
    visit([&]<class T>(TypeTag<T>) {
      kernels::batch_norm_grad(dy.device(), s, input<T>(dy), input<T>(x), input<T>(mean),
                               input<T>(inv_std), input<T>(weight), false, output<T>(dx),
                               output<T>(dot), output<T>(sum));
    });
  if (!saved.needs(0)) return {Tensor(), dot, sum};

  const Tensor totals = summed(group, cat({sum, dot}, 0));
  if (s.n == 0) return {dx, dot, sum};
  const auto on_host = [](const Tensor& t) { return t.cpu().to(DType::f64); };
  const Tensor scale = mul(mul(on_host(inv_std), on_host(weight)), -1 / count);
  const auto there = [&](const Tensor& t) { return t.to(options.dtype).to(options.device); };
  // The terms of dx that are due to the statistics: (x - mean) slope + offset.
  const Tensor offset = there(mul(scale, totals.slice(0, 0, s.c)));
  const Tensor slope = there(mul(mul(scale, on_host(inv_std)), totals.slice(0, s.c, 2 * s.c)));
  const Tensor shared = Tensor::empty(x.sizes(), options), one = ones({s.c}, options);
  visit([&]<class T>(TypeTag<T>) {
    kernels::batch_norm(dy.device(), s, input<T>(x), input<T>(mean), input<T>(slope), input<T>(one),
                        input<T>(offset), output<T>(shared));
  });
  raw::add_into(dx, shared);
  return {dx, dot, sum};
}

}  // namespace

Tensor sync_batch_norm(const std::shared_ptr<comm::ProcessGroup>& group, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, bool training, double momentum, double eps) {
  if (!training || group->size() == 1)
    return batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps);
  if (is_half(x.dtype()))  // computed in f32, as in batch_norm
    return to(sync_batch_norm(group, to(x, DType::f32), weight, bias, running_mean, running_var,
                              training, momentum, eps),
              x.dtype());
  const BatchNormShape s = shape_of(x, weight, bias, running_mean, running_var);
  const Tensor image = x.contiguous(), scale = weight.contiguous(), shift = bias.contiguous();
  const Tensor own_mean = zeros({s.c}, x.options()), own_squares = zeros({s.c}, x.options());
  const auto visit = [&](const auto& f) {
    detail::visit_float_type("sync_batch_norm", x.dtype(), f);
  };
  if (s.n > 0)
    visit([&]<class T>(TypeTag<T>) {
      kernels::batch_stats(x.device(), s, input<T>(image), output<T>(own_mean),
                           output<T>(own_squares));
    });
  const Statistics all =
      gather(*group, static_cast<double>(s.per_channel()), doubles(own_mean), doubles(own_squares));
  require(all.count > 1,
          "sync_batch_norm: training needs more than one value per channel on all ranks together; "
          "give larger batches, or call eval()");

  const Tensor mean = tensor_like(x, all.mean), inv_std = tensor_like(x, all.squares);
  const Tensor y = Tensor::empty(x.sizes(), x.options());
  visit([&]<class T>(TypeTag<T>) {
    kernels::update_running(x.device(), output<T>(running_mean), output<T>(running_var),
                            input<T>(mean), input<T>(inv_std), all.count, momentum);
    kernels::inverse_std(x.device(), output<T>(inv_std), all.count, eps);
    if (s.n > 0)
      kernels::batch_norm(x.device(), s, input<T>(image), input<T>(mean), input<T>(inv_std),
                          input<T>(scale), input<T>(shift), output<T>(y));
  });
  running_mean.bump_version();
  running_var.bump_version();
  return record("SyncBatchNormBackward", {x, weight, bias}, y, {image, scale, mean, inv_std},
                [group, s, count = all.count](const Saved& saved, const Tensor& grad) {
                  return backward(*group, s, count, saved, grad.contiguous());
                });
}

int convert_sync_batchnorm(Module& module, const std::shared_ptr<comm::ProcessGroup>& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::shared_ptr<comm::ProcessGroup> own =
      group->size() > 1 ? group->new_group(ranks) : group;
  int converted = 0;
  module.apply([&](Module& m) {
    auto* layer = dynamic_cast<BatchNorm2d*>(&m);
    if (layer == nullptr) return;
    ++converted;
    layer->set_function([own](const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const Tensor& running_mean, const Tensor& running_var, bool training,
                              double momentum, double eps) {
      return sync_batch_norm(own, x, weight, bias, running_mean, running_var, training, momentum,
                             eps);
    });
  });
  return converted;
}

}  // namespace ringsmith
