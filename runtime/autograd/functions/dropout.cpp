// Dropout: each element is kept with probability 1 - p and scaled by 1 / (1 - p), so that the
// expectation stays. On the CPU the mask is drawn as PyTorch's generator draws it, one double an
// element; on a GPU it comes from a counter (kernels/dropout.hpp), every element by itself.
#include "kernels/dropout.hpp"

#include <string>
#include <utility>

#include "runtime/autograd/function.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

Tensor draw_mask(const Tensor& x, double keep_probability) {
  Tensor mask = Tensor::empty(x.sizes(), {DType::boolean, x.device()});
  if (x.device().is_cpu()) {
    Generator& generator = default_generator();
    for (bool& keep : mask.span<bool>()) keep = generator.uniform_double() < keep_probability;
    return mask;
  }
  const CounterRange range = take_device_counters(
      x.device().index, kernels::philox_blocks(static_cast<std::uint64_t>(x.numel())));
  kernels::dropout_mask(x.device(), mask.kernel_span<bool>(), keep_probability,
                        kernels::PhiloxState{range.seed, range.first});
  return mask;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training) {
  require(p >= 0 && p <= 1, "dropout: p must be between 0 and 1, got " + std::to_string(p));
  if (!training || p == 0 || x.numel() == 0) return x;
  const Tensor mask = draw_mask(x, 1 - p);
  // In float, as 1 / (1 - p) of a float tensor; nothing is kept for p = 1.
  const double scale = p == 1                    ? 0
                       : x.dtype() == DType::f32 ? 1 / static_cast<float>(1 - p)
                                                 : 1 / (1 - p);
  Tensor y = raw::masked_scale(x, mask, scale, "dropout");
  record("DropoutBackward", {x}, y, {mask}, [scale](const Saved& saved, Tensor g) {
    return std::vector<Tensor>{raw::masked_scale(std::move(g), saved[0], scale, "dropout")};
  });
  return y;
}

}  // namespace ringsmith
