// <mma.h> of the emulator: nvcuda::wmma for every shape, with operands in f16, bf16, TF32, 8-bit
// integers or double, and sums in float, f16, int or double.
//
// On a device, the lane that holds an element is unspecified. Here lane l has the elements l,
// l + 32, ... in row-major order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "kernels/vgpu/api/tensor.hpp"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

// TF32 keeps 10 bits of the mantissa. Rounds to nearest, ties away from zero, like cvt.rna.tf32.
inline float __float_to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return x;  // infinity, NaN
  return std::bit_cast<float>((bits + 0x1000U) & ~0x1fffU);
}

namespace vgpu_detail {
template <class T>
struct Stored {
  using Type = T;
};
template <>
struct Stored<precision::tf32> {
  using Type = float;
};
}  // namespace vgpu_detail

// A fragment of kRows x kColumns for a product m x n x k.
template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static constexpr int kRows = std::is_same_v<Use, matrix_b> ? k : m;
  static constexpr int kColumns = std::is_same_v<Use, matrix_a> ? k : n;
  static constexpr int num_elements = kRows * kColumns / 32;
  using Element = typename vgpu_detail::Stored<T>::Type;
  Element x[num_elements];
};

template <class Fragment>
void fill_fragment(Fragment& f, typename Fragment::Element value) {
  for (auto& x : f.x) x = value;
}

namespace vgpu_detail {
// The place in memory of the lane's i-th element.
template <class F>
std::size_t place(int i, unsigned ld, bool by_rows) {
  const unsigned e = vgpu::lane() + 32U * static_cast<unsigned>(i);
  const unsigned row = e / F::kColumns, column = e % F::kColumns;
  return by_rows ? std::size_t{row} * ld + column : std::size_t{column} * ld + row;
}
}  // namespace vgpu_detail

template <class Use, int m, int n, int k, class T, class Layout>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f,
                      const typename fragment<Use, m, n, k, T, Layout>::Element* from,
                      unsigned ld) {
  using F = fragment<Use, m, n, k, T, Layout>;
  for (int i = 0; i < F::num_elements; ++i)
    f.x[i] = from[vgpu_detail::place<F>(i, ld, std::is_same_v<Layout, row_major>)];
}
template <int m, int n, int k, class T>
void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const T* from, unsigned ld,
                      layout_t layout) {
  using F = fragment<accumulator, m, n, k, T>;
  for (int i = 0; i < F::num_elements; ++i)
    f.x[i] = from[vgpu_detail::place<F>(i, ld, layout == mem_row_major)];
}
template <int m, int n, int k, class T>
void store_matrix_sync(T* to, const fragment<accumulator, m, n, k, T>& f, unsigned ld,
                       layout_t layout) {
  using F = fragment<accumulator, m, n, k, T>;
  for (int i = 0; i < F::num_elements; ++i)
    to[vgpu_detail::place<F>(i, ld, layout == mem_row_major)] = f.x[i];
}

namespace vgpu_detail {

// The type in which products are added: a sum in f16 is rounded once, at the end.
template <class T>
using Sum = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class A, class B, class C>
struct Operands {
  C* d;
  const A* a;
  const B* b;
  const C* c;
};

template <class A, class B, class C>
void multiply(void* const* brought) {
  constexpr int kM = C::kRows, kN = C::kColumns, kK = A::kColumns;
  const auto lane = [&](int l) { return static_cast<const Operands<A, B, C>*>(brought[l]); };
  using S = Sum<typename C::Element>;
  S a[kM][kK], b[kK][kN], d[kM][kN];
  for (int l = 0; l < 32; ++l) {
    for (int i = 0; i < A::num_elements; ++i)
      a[(l + 32 * i) / kK][(l + 32 * i) % kK] = static_cast<S>(lane(l)->a->x[i]);
    for (int i = 0; i < B::num_elements; ++i)
      b[(l + 32 * i) / kN][(l + 32 * i) % kN] = static_cast<S>(lane(l)->b->x[i]);
    for (int i = 0; i < C::num_elements; ++i)
      d[(l + 32 * i) / kN][(l + 32 * i) % kN] = static_cast<S>(lane(l)->c->x[i]);
  }
  for (int i = 0; i < kM; ++i)
    for (int q = 0; q < kK; ++q)
      for (int j = 0; j < kN; ++j) d[i][j] += a[i][q] * b[q][j];
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < C::num_elements; ++i)
      lane(l)->d->x[i] = static_cast<typename C::Element>(d[(l + 32 * i) / kN][(l + 32 * i) % kN]);
}

}  // namespace vgpu_detail

// d = a b + c, where d may be c. All 32 lanes meet.
template <class A, class B, class C>
void mma_sync(C& d, const A& a, const B& b, const C& c,
              vgpu::Source where = vgpu::Source::current()) {
  vgpu_detail::Operands<A, B, C> mine{&d, &a, &b, &c};
  vgpu::meet_together(vgpu_detail::multiply<A, B, C>, &mine, where);
}

}  // namespace nvcuda::wmma
