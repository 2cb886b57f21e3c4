#include "runtime/tensor/factory.hpp"

#include <cmath>

#include "kernels/copy.hpp"

namespace ringsmith {

Tensor full(const Shape& sizes, double value, TensorOptions options) {
  Tensor out = Tensor::empty(sizes, options);
  out.fill_(value);
  return out;
}

Tensor scalar(double value, DType dtype) { return full({}, value, {dtype}); }

Tensor arange(double start, double stop, double step, TensorOptions options) {
  require(step != 0 && std::isfinite(start) && std::isfinite(stop) && std::isfinite(step),
          "arange: start, stop and step must be finite, and step not zero");
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  Tensor out = Tensor::empty({static_cast<std::int64_t>(count)}, {options.dtype});
  visit_dtype(options.dtype, [&]<class T>(TypeTag<T>) {
    T* to = out.data<T>();
    for (std::int64_t i = 0; i < out.numel(); ++i)
      to[i] = kernels::convert<T>(start + static_cast<double>(i) * step);
  });
  return out.to(options.device);
}

Tensor rand(const Shape& sizes, Generator& g) {
  Tensor out = Tensor::empty(sizes);
  fill_uniform(out.span<float>(), 0.0, 1.0, g);
  return out;
}

Tensor randn(const Shape& sizes, Generator& g) {
  Tensor out = Tensor::empty(sizes);
  fill_normal(out.span<float>(), 0.0, 1.0, g);
  return out;
}

}  // namespace ringsmith
