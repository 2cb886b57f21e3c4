// Element-wise kernels: one pass over memory, with nothing else to optimise.
//
//   1  strided        one element per thread and iteration, at a position found by division; for
//                     any View
//   2  strided packs  one pack of 16 bytes per thread and iteration, if every operand is
//                     contiguous or broadcast in the innermost dimension (a bias added to rows)
//   3  packs          for contiguous operands. kUnroll packs are read before the first is written,
//                     so that each thread has that many loads in flight. The last few elements
//                     are processed one by one
// Version 3 is compiled separately for every operation on float and bf16. Versions 1 and 2, double
// and f16 select the operation by a switch inside the kernel, which is cheap because all threads
// take the same branch.
//
// 16-bit elements are widened after the load and rounded before the store, in registers: a GELU of
// bf16 moves 4 bytes an element. Separate kernels that widen, compute and round would move 20.
#include <type_traits>

#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/strided.cuh"
#include "kernels/elementwise.hpp"

namespace ringsmith::kernels::cuda {

namespace {

template <Unary op>
struct UnaryOp {
  template <class T>
  __device__ T operator()(T x) const {
    return apply_unary<op>(x);
  }
};
template <Binary op>
struct BinaryOp {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return apply_binary<op>(a, b);
  }
};

// Calls f with a function object for `op`, known at compile time.
template <class F>
__host__ __device__ auto visit(Unary op, F&& f) {
  switch (op) {
    case Unary::neg:
      return f(UnaryOp<Unary::neg>{});
    case Unary::exp:
      return f(UnaryOp<Unary::exp>{});
    case Unary::log:
      return f(UnaryOp<Unary::log>{});
    case Unary::sqrt:
      return f(UnaryOp<Unary::sqrt>{});
    case Unary::tanh:
      return f(UnaryOp<Unary::tanh>{});
    case Unary::sigmoid:
      return f(UnaryOp<Unary::sigmoid>{});
    case Unary::relu:
      return f(UnaryOp<Unary::relu>{});
    case Unary::gelu_erf:
      return f(UnaryOp<Unary::gelu_erf>{});
    case Unary::gelu_tanh:
      break;
  }
  return f(UnaryOp<Unary::gelu_tanh>{});
}
template <class F>
__host__ __device__ auto visit(Binary op, F&& f) {
  switch (op) {
    case Binary::add:
      return f(BinaryOp<Binary::add>{});
    case Binary::sub:
      return f(BinaryOp<Binary::sub>{});
    case Binary::mul:
      return f(BinaryOp<Binary::mul>{});
    case Binary::div:
      return f(BinaryOp<Binary::div>{});
    case Binary::tanh_backward:
      return f(BinaryOp<Binary::tanh_backward>{});
    case Binary::sigmoid_backward:
      return f(BinaryOp<Binary::sigmoid_backward>{});
    case Binary::sqrt_backward:
      return f(BinaryOp<Binary::sqrt_backward>{});
    case Binary::relu_backward:
      return f(BinaryOp<Binary::relu_backward>{});
    case Binary::gelu_erf_backward:
      return f(BinaryOp<Binary::gelu_erf_backward>{});
    case Binary::gelu_tanh_backward:
      break;
  }
  return f(BinaryOp<Binary::gelu_tanh_backward>{});
}

template <class Op>
struct Switched {  // the operation is selected inside the kernel
  Op op;
  template <class... T>
  __device__ auto operator()(T... x) const {
    return visit(op, [=](auto chosen) { return chosen(x...); });
  }
};

template <class Op, class D, int N, class... In>
__device__ Pack<D, N> map_pack(const Op& op, const Pack<In, N>&... in) {
  const auto map = [&](const auto&... wide) {
    Pack<Wide<D>, N> out;
    for (int k = 0; k < N; ++k) out.at[k] = op(wide.at[k]...);
    return out;
  };
  return narrowed<D>(map(widened(in)...));
}

constexpr int kUnroll = 4;

template <class Op, class D, class... In>
__global__ void map_packs(std::int64_t n, Op op, D* out, const In*... in) {
  constexpr int N = kPack<D>;
  const std::int64_t packs = n / N, stride = item_stride();
  std::int64_t i = first_item();
  for (; i + (kUnroll - 1) * stride < packs; i += kUnroll * stride) {
    Pack<D, N> results[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      results[u] = map_pack<Op, D, N>(op, load_pack<N>(in, i + u * stride)...);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) store_pack(out, i + u * stride, results[u]);
  }
  for (; i < packs; i += stride) store_pack(out, i, map_pack<Op, D, N>(op, load_pack<N>(in, i)...));
  for (std::int64_t k = packs * N + first_item(); k < n; k += stride)
    out[k] = static_cast<D>(op(widened(in[k])...));
}

template <class T, int N>
__device__ Pack<T, N> load_or_spread(const T* p, bool broadcast) {
  if (!broadcast) return load_pack<N>(p, 0);
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) pack.at[k] = *p;
  return pack;
}

// Processes kWidth elements of the innermost dimension at a time: 1, or a pack (after in_packs()).
template <int kWidth, class Op, class D, class A>
__global__ void map_strided(std::int64_t n, Nest<2> nest, Op op, D* out, const A* a) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const Offsets<2> at = offsets_of(nest, i);
    store_pack(
        out + at[0], 0,
        map_pack<Op, D, kWidth>(op, load_or_spread<A, kWidth>(a + at[1], nest.inner(1) == 0)));
  }
}
template <int kWidth, class Op, class D, class A, class B>
__global__ void map_strided(std::int64_t n, Nest<3> nest, Op op, D* out, const A* a, const B* b) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const Offsets<3> at = offsets_of(nest, i);
    store_pack(out + at[0], 0,
               map_pack<Op, D, kWidth>(op, load_or_spread<A, kWidth>(a + at[1], nest.inner(1) == 0),
                                       load_or_spread<B, kWidth>(b + at[2], nest.inner(2) == 0)));
  }
}

template <int N, class Op, class D, class... In>
void map_nest(Nest<N> nest, const Op& op, D* out, const In*... in) {
  constexpr int kWidth = kPack<D>;
  std::int64_t n = numel(nest);
  if (aligned(out, in...) && in_packs(nest, kWidth)) {
    n /= kWidth;
    launch_over(map_strided<kWidth, Op, D, In...>, n, kThreads, n, nest, op, out, in...);
  } else {
    launch_over(map_strided<1, Op, D, In...>, n, kThreads, n, nest, op, out, in...);
  }
}

// Uses version 3 if possible. `fixed` knows the operation at compile time, `chosen` at run time.
template <int N, class Fixed, class Chosen, class D, class... In>
void map(const Nest<N>& nest, const Fixed& fixed, const Chosen& chosen, D* out, const In*... in) {
  const std::int64_t n = numel(nest);
  if (n == 0) return;
  if (!is_contiguous(nest) || !aligned(out, in...)) return map_nest(nest, chosen, out, in...);
  const dim3 grid = grid_for(ceil_div(n, kPack<D>), std::int64_t{kThreads} * kUnroll);
  if constexpr (std::is_same_v<D, float> || std::is_same_v<D, bf16>)
    launch(map_packs<Fixed, D, In...>, grid, kThreads, 0, stream(), n, fixed, out, in...);
  else
    launch(map_packs<Chosen, D, In...>, grid, kThreads, 0, stream(), n, chosen, out, in...);
}

template <class T, class Op>
void map1(View<T> out, View<const T> x, const Op& op) {
  map(nest_of<2>({&out.layout, &x.layout}), op, op, out.data, x.data);
}
template <class T, class Op>
void map_mask(View<T> out, View<const T> x, View<const bool> mask, const Op& op) {
  map(nest_of<3>({&out.layout, &x.layout, &mask.layout}), op, op, out.data, x.data, mask.data);
}

}  // namespace

template <class T>
void unary(Unary op, View<T> out, View<const T> x) {
  visit(op, [&](auto fixed) {
    map(nest_of<2>({&out.layout, &x.layout}), fixed, Switched<Unary>{op}, out.data, x.data);
  });
}

template <class T>
void binary(Binary op, View<T> out, View<const T> a, View<const T> b) {
  visit(op, [&](auto fixed) {
    map(nest_of<3>({&out.layout, &a.layout, &b.layout}), fixed, Switched<Binary>{op}, out.data,
        a.data, b.data);
  });
}

template <class T>
void scalar(Scalar op, View<T> out, View<const T> x, Wide<T> s) {
  using W = Wide<T>;
  switch (op) {
    case Scalar::add:
      return map1(out, x, [=] __device__(W v) { return v + s; });
    case Scalar::mul:
      return map1(out, x, [=] __device__(W v) { return v * s; });
    case Scalar::div:
      return map1(out, x, [=] __device__(W v) { return v / s; });
    case Scalar::pow:
      return map1(out, x, Power<W>{s, 1});
    case Scalar::pow_backward:
      return map1(out, x, Power<W>{s - 1, s});
  }
}

template <class T>
void masked_fill(View<T> out, View<const T> x, View<const bool> mask, Wide<T> value) {
  map_mask(out, x, mask, [=] __device__(Wide<T> v, bool m) { return m ? value : v; });
}

template <class T>
void masked_scale(View<T> out, View<const T> x, View<const bool> mask, Wide<T> scale) {
  map_mask(out, x, mask,
           [=] __device__(Wide<T> v, bool m) { return v * (m ? scale : Wide<T>(0)); });
}

template <class T>
void add_widened(View<float> out, View<const float> a, View<const T> b) {
  map(nest_of<3>({&out.layout, &a.layout, &b.layout}), BinaryOp<Binary::add>{},
      BinaryOp<Binary::add>{}, out.data, a.data, b.data);
}

RINGSMITH_FLOAT_AND_DOUBLE(unary)
RINGSMITH_FLOAT_AND_DOUBLE(binary)
RINGSMITH_FLOAT_AND_DOUBLE(scalar)
RINGSMITH_FLOAT_AND_DOUBLE(masked_fill)
RINGSMITH_FLOAT_AND_DOUBLE(masked_scale)
RINGSMITH_HALVES(unary)
RINGSMITH_HALVES(binary)
RINGSMITH_HALVES(scalar)
RINGSMITH_HALVES(masked_fill)
RINGSMITH_HALVES(masked_scale)
RINGSMITH_HALVES(add_widened)

}  // namespace ringsmith::kernels::cuda
