// attention on separate (b, h, t, d) tensors, and attention_qkv on the packed result of one Linear
// layer. Both pass strided heads to the same kernel.
#include "kernels/attention.hpp"

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

namespace {

using kernels::AttentionBf16Saved;
using kernels::AttentionSaved;
using kernels::AttentionShape;
using kernels::Heads;
using kernels::RowStatistic;
using raw::wide;

// A (b, h, t, d) tensor whose last dimension is contiguous.
template <class T>
Heads<T> heads_of(const Tensor& t) {
  return {t.kernel_data<T>(), t.strides()[0], t.strides()[1], t.strides()[2]};
}

// Part 0, 1 or 2 (q, k or v) of a contiguous (b, t, 3 c), or a whole (b, t, c) if parts = 1.
template <class T>
Heads<T> packed_heads(const Tensor& t, std::int64_t heads, std::int64_t part, std::int64_t parts) {
  const std::int64_t channels = t.size(2) / parts;
  return {t.kernel_data<T>() + part * channels, t.strides()[0], channels / heads, t.strides()[1]};
}

Tensor rows_contiguous(const Tensor& t) {
  return t.size(3) == 1 || t.strides()[3] == 1 ? t : t.contiguous();
}

// The statistics: two numbers per row.
Tensor empty_statistics(const AttentionShape& s, TensorOptions options) {
  return Tensor::empty({s.rows(), 2}, options);
}
template <class T>
std::span<RowStatistic<T>> statistics_of(const Tensor& t) {
  static_assert(sizeof(RowStatistic<T>) == 2 * sizeof(T));
  return {reinterpret_cast<RowStatistic<T>*>(t.kernel_data<T>()),
          static_cast<std::size_t>(t.size(0))};
}

// ---- bf16 without widened copies, if the device has a kernel for it ----

bool on_tensor_cores(const Tensor& t, const AttentionShape& s) {
  if (t.dtype() != DType::bf16 || !t.device().is_cuda()) return false;
  const DeviceGuard guard(t.device());
  return kernels::cuda::has_attention_bf16(s);
}

void half_forward(Device device, Heads<const bf16> q, Heads<const bf16> k, Heads<const bf16> v,
                  Heads<bf16> out, const Tensor& statistics, const AttentionShape& s) {
  RINGSMITH_PROFILED(attention, q, k, v, out, statistics_of<float>(statistics), s)
  const DeviceGuard guard(device);
  kernels::cuda::attention_bf16(q, k, v, out, statistics_of<float>(statistics), s);
}
void half_backward(Device device, Heads<const bf16> dout, const AttentionBf16Saved& saved,
                   Heads<bf16> dq, Heads<bf16> dk, Heads<bf16> dv, const AttentionShape& s) {
  RINGSMITH_PROFILED(attention_backward, dout, saved.q, saved.k, saved.v, saved.out, dq, dk, dv, s)
  const DeviceGuard guard(device);
  kernels::cuda::attention_backward_bf16(dout, saved, dq, dk, dv, s);
}

TensorOptions statistics_options(const Tensor& t) { return {DType::f32, t.device()}; }

Tensor attention_of_halves(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& a,
                           const Tensor& b, const Tensor& c, const AttentionShape& s) {
  const Tensor statistics = empty_statistics(s, statistics_options(q));
  const Tensor out = Tensor::empty(q.sizes(), q.options());
  half_forward(q.device(), heads_of<bf16>(a), heads_of<bf16>(b), heads_of<bf16>(c),
               heads_of<bf16>(out), statistics, s);
  return record("AttentionBackward", {q, k, v}, out, {a, b, c, out, statistics},
                [s](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = rows_contiguous(grad);
                  std::vector<Tensor> grads(3);
                  for (Tensor& g : grads) g = Tensor::empty(dy.sizes(), dy.options());
                  half_backward(
                      dy.device(), heads_of<bf16>(dy),
                      {heads_of<bf16>(saved[0]), heads_of<bf16>(saved[1]), heads_of<bf16>(saved[2]),
                       heads_of<bf16>(saved[3]), statistics_of<float>(saved[4])},
                      heads_of<bf16>(grads[0]), heads_of<bf16>(grads[1]), heads_of<bf16>(grads[2]),
                      s);
                  return grads;
                });
}

Tensor attention_of_packed_halves(const Tensor& qkv, const AttentionShape& s) {
  const auto part = [s](const Tensor& t, std::int64_t i) {
    return packed_heads<bf16>(t, s.heads, i, 3);
  };
  const Tensor in = qkv.contiguous(), statistics = empty_statistics(s, statistics_options(qkv));
  const Tensor out = Tensor::empty({s.batch, s.tokens, s.heads * s.dim}, qkv.options());
  half_forward(qkv.device(), part(in, 0), part(in, 1), part(in, 2),
               packed_heads<bf16>(out, s.heads, 0, 1), statistics, s);
  return record("AttentionQkvBackward", {qkv}, out, {in, out, statistics},
                [s, part](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = grad.contiguous(), &packed = saved[0];
                  const Tensor dqkv = Tensor::empty(packed.sizes(), dy.options());
                  half_backward(
                      dy.device(), packed_heads<bf16>(dy, s.heads, 0, 1),
                      {part(packed, 0), part(packed, 1), part(packed, 2),
                       packed_heads<bf16>(saved[1], s.heads, 0, 1), statistics_of<float>(saved[2])},
                      part(dqkv, 0), part(dqkv, 1), part(dqkv, 2), s);
                  return std::vector<Tensor>{dqkv};
                });
}

}  // namespace

Tensor attention(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, bool causal) {
  const profile::Operation operation("attention");
  const Tensor q = autocast::lower(given_q), k = autocast::lower(given_k),
               v = autocast::lower(given_v);
  require(q.defined() && k.defined() && v.defined() && q.dim() == 4 && q.sizes() == k.sizes() &&
              q.sizes() == v.sizes() && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
          "attention: q, k and v must be (batch, heads, tokens, dim) of one shape and dtype, got " +
              detail::shape_of(q) + ", " + detail::shape_of(k) + ", " + detail::shape_of(v));
  const Device device = detail::common_device("attention", q, k, v);
  const AttentionShape s{q.size(0), q.size(1), q.size(2), q.size(3), causal};
  const Tensor a = rows_contiguous(q), b = rows_contiguous(k), c = rows_contiguous(v);
  if (on_tensor_cores(q, s)) return attention_of_halves(q, k, v, a, b, c, s);
  const Tensor wide_a = wide(a), wide_b = wide(b), wide_c = wide(c);
  const Tensor statistics = empty_statistics(s, wide_a.options());
  const Tensor wide_out = Tensor::empty(q.sizes(), wide_a.options());
  detail::visit_float_type("attention", wide_a.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::attention(device, heads_of<T>(wide_a), heads_of<T>(wide_b), heads_of<T>(wide_c),
                       heads_of<T>(wide_out), statistics_of<T>(statistics), s);
  });
  const Tensor out = wide_out.to(q.dtype());
  return record(
      "AttentionBackward", {q, k, v}, out, {a, b, c, out, statistics},
      [s](const Saved& saved, const Tensor& grad) {
        const Tensor dy = wide(rows_contiguous(grad));
        std::vector<Tensor> in, grads(3);
        for (std::size_t i = 0; i < 4; ++i) in.push_back(wide(saved[i]));
        for (Tensor& g : grads) g = Tensor::empty(dy.sizes(), dy.options());
        detail::visit_float_type("attention", dy.dtype(), [&]<class T>(TypeTag<T>) {
          kernels::attention_backward(
              dy.device(), heads_of<T>(dy),
              AttentionSaved<T>{heads_of<T>(in[0]), heads_of<T>(in[1]), heads_of<T>(in[2]),
                                heads_of<T>(in[3]), statistics_of<T>(saved[4])},
              heads_of<T>(grads[0]), heads_of<T>(grads[1]), heads_of<T>(grads[2]), s);
        });
        for (Tensor& g : grads) g = g.to(grad.dtype());
        return grads;
      });
}

Tensor attention_qkv(const Tensor& given, int heads, bool causal) {
  const profile::Operation operation("attention_qkv");
  const Tensor qkv = autocast::lower(given);
  require(qkv.defined() && qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
          "attention_qkv: expected (batch, tokens, 3 * channels), channels divisible by " +
              std::to_string(heads) + " heads, got " + detail::shape_of(qkv));
  const std::int64_t channels = qkv.size(2) / 3;
  const AttentionShape s{qkv.size(0), heads, qkv.size(1), channels / heads, causal};
  if (on_tensor_cores(qkv, s)) return attention_of_packed_halves(qkv, s);
  const Tensor in = qkv.contiguous(), wide_in = wide(in);
  const Tensor statistics = empty_statistics(s, wide_in.options());
  const Tensor wide_out = Tensor::empty({s.batch, s.tokens, channels}, wide_in.options());
  detail::visit_float_type("attention_qkv", wide_in.dtype(), [&]<class T>(TypeTag<T>) {
    const auto part = [&](std::int64_t i) { return packed_heads<T>(wide_in, heads, i, 3); };
    kernels::attention(qkv.device(), part(0), part(1), part(2),
                       packed_heads<T>(wide_out, heads, 0, 1), statistics_of<T>(statistics), s);
  });
  const Tensor out = wide_out.to(qkv.dtype());
  return record(
      "AttentionQkvBackward", {qkv}, out, {in, out, statistics},
      [s](const Saved& saved, const Tensor& grad) {
        const Tensor dy = wide(grad.contiguous());
        const Tensor packed = wide(saved[0]), y = wide(saved[1]);
        const Tensor dqkv = Tensor::empty(packed.sizes(), dy.options());
        detail::visit_float_type("attention_qkv", dy.dtype(), [&]<class T>(TypeTag<T>) {
          const auto part = [&](const Tensor& t, std::int64_t i) {
            return packed_heads<T>(t, s.heads, i, 3);
          };
          kernels::attention_backward(
              dy.device(), packed_heads<T>(dy, s.heads, 0, 1),
              AttentionSaved<T>{part(packed, 0), part(packed, 1), part(packed, 2),
                                packed_heads<T>(y, s.heads, 0, 1), statistics_of<T>(saved[2])},
              part(dqkv, 0), part(dqkv, 1), part(dqkv, 2), s);
        });
        return std::vector<Tensor>{dqkv.to(grad.dtype())};
      });
}

}  // namespace ringsmith
