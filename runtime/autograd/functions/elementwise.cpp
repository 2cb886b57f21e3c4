// Element-wise functions, including dropout. The gradient of a broadcast operand is summed back to
// its own shape.

#include <string>
#include <utility>

#include "kernels/dropout.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/device/capture.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

using raw::Binary;
using raw::Scalar;
using raw::Unary;
using Grads = std::vector<Tensor>;

// y = f(x). Backward is a single kernel on the gradient and either x or y.
enum class Keep : std::uint8_t { input, output };
Tensor unary_function(const char* what, const char* node, Unary op, Binary backward, Keep keep,
                      const Tensor& x) {
  Tensor y = raw::unary(op, x, what);
  return record(node, {x}, y, {keep == Keep::input ? x : y},
                [what, backward](const Saved& saved, Tensor g) {
                  return Grads{raw::binary(backward, std::move(g), saved[0], what)};
                });
}

// True if a and b have two different dtypes among f32, f16 and bf16. f64 is never converted
// implicitly.
bool to_promote(const Tensor& a, const Tensor& b) {
  const auto mixed = [](DType dtype) { return dtype == DType::f32 || is_half(dtype); };
  return a.dtype() != b.dtype() && mixed(a.dtype()) && mixed(b.dtype());
}

using BinaryFunction = Tensor(const Tensor&, const Tensor&);
Tensor promoting(BinaryFunction* function, const Tensor& a, const Tensor& b) {
  const bool with_number = (a.dim() == 0) != (b.dim() == 0);
  const DType dtype = !with_number ? DType::f32 : a.dim() == 0 ? b.dtype() : a.dtype();
  return function(to(a, dtype), to(b, dtype));
}

// True if a GPU adds `b` of 16 bits to `a` of f32 in one kernel. If b is a leaf, to() converts it
// instead, because its backward writes the gradient directly to its destination.
bool widens_in_add(const Tensor& a, const Tensor& b) {
  return a.dtype() == DType::f32 && is_half(b.dtype()) && a.device().is_cuda() && a.dim() > 0 &&
         b.dim() > 0 && !(b.is_leaf() && b.requires_grad());
}

// to(b, f32) + a, and its gradients, without the conversion in forward.
Tensor add_half(const Tensor& a, const Tensor& b) {
  const profile::Operation operation("add");
  return record(
      "AddBackward", {a, b}, raw::add_widened(a, b, "add"), {},
      [sa = a.sizes(), sb = b.sizes(), dtype = b.dtype()](const Saved& saved, const Tensor& g) {
        return Grads{saved.needs(0) ? raw::sum_to(g, sa) : Tensor(),
                     saved.needs(1) ? raw::sum_to(g, sb).to(dtype) : Tensor()};
      });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (widens_in_add(a, b)) return add_half(a, b);
  if (widens_in_add(b, a)) return add_half(b, a);
  if (to_promote(a, b)) return promoting(add, a, b);
  const profile::Operation operation("add");
  return record("AddBackward", {a, b}, raw::binary(Binary::add, a, b, "add"), {},
                [sa = a.sizes(), sb = b.sizes()](const Saved& saved, const Tensor& g) {
                  return Grads{saved.needs(0) ? raw::sum_to(g, sa) : Tensor(),
                               saved.needs(1) ? raw::sum_to(g, sb) : Tensor()};
                });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  if (to_promote(a, b)) return promoting(sub, a, b);
  const profile::Operation operation("sub");
  return record("SubBackward", {a, b}, raw::binary(Binary::sub, a, b, "sub"), {},
                [sa = a.sizes(), sb = b.sizes()](const Saved& saved, const Tensor& g) {
                  Tensor gb;
                  if (saved.needs(1)) gb = raw::sum_to(raw::unary(Unary::neg, g, "sub"), sb);
                  return Grads{saved.needs(0) ? raw::sum_to(g, sa) : Tensor(), gb};
                });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (to_promote(a, b)) return promoting(mul, a, b);
  const profile::Operation operation("mul");
  return record("MulBackward", {a, b}, raw::binary(Binary::mul, a, b, "mul"), {a, b},
                [sa = a.sizes(), sb = b.sizes()](const Saved& saved, Tensor g) {
                  Tensor ga, gb;
                  if (saved.needs(1))
                    gb = raw::sum_to(raw::binary(Binary::mul, g, saved[0], "mul"), sb);
                  if (saved.needs(0))
                    ga = raw::sum_to(raw::binary(Binary::mul, std::move(g), saved[1], "mul"), sa);
                  return Grads{ga, gb};
                });
}

Tensor div(const Tensor& a, const Tensor& b) {
  if (to_promote(a, b)) return promoting(div, a, b);
  const profile::Operation operation("div");
  Tensor y = raw::binary(Binary::div, a, b, "div");
  return record("DivBackward", {a, b}, y, {y, b},
                [sa = a.sizes(), sb = b.sizes()](const Saved& saved, Tensor g) {
                  Tensor ga, gb;
                  if (saved.needs(1)) {  // -g (a / b) / b
                    const Tensor slope = raw::binary(Binary::div, saved[0], saved[1], "div");
                    gb = raw::sum_to(
                        raw::binary(Binary::mul, raw::unary(Unary::neg, g, "div"), slope, "div"),
                        sb);
                  }
                  if (saved.needs(0))
                    ga = raw::sum_to(raw::binary(Binary::div, std::move(g), saved[1], "div"), sa);
                  return Grads{ga, gb};
                });
}

Tensor add(const Tensor& a, double b) {
  const profile::Operation operation("add");
  return record("AddBackward", {a}, raw::scalar(Scalar::add, a, b, "add"), {},
                [](const Saved&, Tensor g) { return Grads{std::move(g)}; });
}

Tensor mul(const Tensor& a, double b) {
  const profile::Operation operation("mul");
  return record("MulBackward", {a}, raw::scalar(Scalar::mul, a, b, "mul"), {},
                [b](const Saved&, Tensor g) {
                  return Grads{raw::scalar(Scalar::mul, std::move(g), b, "mul")};
                });
}

Tensor neg(const Tensor& x) {
  const profile::Operation operation("neg");
  return record(
      "NegBackward", {x}, raw::unary(Unary::neg, x, "neg"), {},
      [](const Saved&, Tensor g) { return Grads{raw::unary(Unary::neg, std::move(g), "neg")}; });
}

Tensor pow(const Tensor& given, double exponent) {
  const profile::Operation operation("pow");
  const Tensor x = autocast::f32(given);
  return record("PowBackward", {x}, raw::scalar(Scalar::pow, x, exponent, "pow"), {x},
                [exponent](const Saved& saved, Tensor g) {
                  if (exponent == 0) return Grads{zeros_like(saved[0])};  // 0 x^-1 is NaN at 0
                  const Tensor slope = raw::scalar(Scalar::pow_backward, saved[0], exponent, "pow");
                  return Grads{raw::binary(Binary::mul, std::move(g), slope, "pow")};
                });
}

Tensor exp(const Tensor& x) {
  const profile::Operation operation("exp");
  return unary_function("exp", "ExpBackward", Unary::exp, Binary::mul, Keep::output,
                        autocast::f32(x));
}
Tensor log(const Tensor& x) {
  const profile::Operation operation("log");
  return unary_function("log", "LogBackward", Unary::log, Binary::div, Keep::input,
                        autocast::f32(x));
}
Tensor sqrt(const Tensor& x) {
  const profile::Operation operation("sqrt");
  return unary_function("sqrt", "SqrtBackward", Unary::sqrt, Binary::sqrt_backward, Keep::output,
                        x);
}
Tensor tanh(const Tensor& x) {
  const profile::Operation operation("tanh");
  return unary_function("tanh", "TanhBackward", Unary::tanh, Binary::tanh_backward, Keep::output,
                        x);
}
Tensor sigmoid(const Tensor& x) {
  const profile::Operation operation("sigmoid");
  return unary_function("sigmoid", "SigmoidBackward", Unary::sigmoid, Binary::sigmoid_backward,
                        Keep::output, x);
}
Tensor relu(const Tensor& x) {
  const profile::Operation operation("relu");
  return unary_function("relu", "ReluBackward", Unary::relu, Binary::relu_backward, Keep::output,
                        x);
}
Tensor gelu(const Tensor& x, Gelu approximate) {
  const profile::Operation operation("gelu");
  return approximate == Gelu::erf ? unary_function("gelu", "GeluBackward", Unary::gelu_erf,
                                                   Binary::gelu_erf_backward, Keep::input, x)
                                  : unary_function("gelu", "GeluBackward", Unary::gelu_tanh,
                                                   Binary::gelu_tanh_backward, Keep::input, x);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  const profile::Operation operation("masked_fill");
  return record("MaskedFillBackward", {x}, raw::masked_fill(x, mask, value, "masked_fill"), {mask},
                [](const Saved& saved, Tensor g) {
                  return Grads{raw::masked_fill(std::move(g), saved[0], 0, "masked_fill")};
                });
}

// ---- dropout ----
// Each element is kept with probability 1 - p and scaled by 1 / (1 - p). On the CPU the mask is
// drawn like PyTorch's, one double per element. On a GPU each element of the mask is computed from
// a counter (kernels/dropout.hpp).

namespace {

Tensor draw_mask(const Tensor& x, double keep_probability) {
  Tensor mask = Tensor::empty(x.sizes(), {DType::boolean, x.device()});
  if (x.device().is_cpu()) {
    Generator& generator = default_generator();
    for (bool& keep : mask.span<bool>()) keep = generator.uniform_double() < keep_probability;
    return mask;
  }
  capture::refuse("draw random numbers (dropout), because each replay would draw the same ones");
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
  const profile::Operation operation("dropout");
  const Tensor mask = draw_mask(x, 1 - p);
  // The scale is computed in float unless x is f64. For p = 1, no element is kept.
  const double scale = p == 1                    ? 0
                       : x.dtype() != DType::f64 ? 1 / static_cast<float>(1 - p)
                                                 : 1 / (1 - p);
  return record("DropoutBackward", {x}, raw::masked_scale(x, mask, scale, "dropout"), {mask},
                [scale](const Saved& saved, Tensor g) {
                  return Grads{raw::masked_scale(std::move(g), saved[0], scale, "dropout")};
                });
}

}  // namespace ringsmith
