// Dropout: each element is kept with probability 1 - p and scaled by 1 / (1 - p), so that the
// expectation stays. The mask is drawn as PyTorch's CPU generator draws it: one double an element.
#include <string>
#include <utility>

#include "runtime/autograd/function.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

Tensor dropout(const Tensor& x, double p, bool training) {
  require(p >= 0 && p <= 1, "dropout: p must be between 0 and 1, got " + std::to_string(p));
  if (!training || p == 0 || x.numel() == 0) return x;
  const Tensor mask = Tensor::empty(x.sizes(), {DType::boolean, x.device()});
  Generator& generator = default_generator();
  for (bool& keep : mask.span<bool>()) keep = generator.uniform_double() < 1 - p;
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
