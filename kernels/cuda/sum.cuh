// Sums as folds (kernels/cuda/fold.cuh), for every kernel that ends in one.
#pragma once

#include "kernels/cuda/fold.cuh"

namespace ringsmith::kernels::cuda {

template <class T>
struct Sums {
  using Value = T;
  __device__ T none() const { return 0; }
  __device__ T combine(T a, T b) const { return a + b; }
};

// out[at] (+)= the sum of elements of x.
template <class T>
struct SumInto : Sums<T> {
  static constexpr bool kPacks = true;
  const T* x;
  T* out;
  bool add;
  __device__ T term(std::int64_t at, std::int64_t) const { return x[at]; }
  __device__ Pack<T, kChains> pack(std::int64_t at) const { return load_pack<kChains>(x + at, 0); }
  template <class At>
  __device__ void finish(const At& at, T value) const {
    T& to = out[at[0]];
    to = add ? to + value : value;
  }
};

// Whether terms that lie as `folded` says, after starts as in operand N - 1 of `kept`, can be read
// in packs of kChains.
template <int N, class T>
bool folds_in_packs(const T* x, const Nest<N>& kept, const Nest<1>& folded) {
  if (folded.dims != 1 || folded.inner(0) != 1 || !aligned_for(x, kChains)) return false;
  if (folded.inner_size() < kWarp) return false;  // not worth a warp
  for (std::size_t d = 0; d < static_cast<std::size_t>(kept.dims); ++d)
    if (kept.sizes[d] != 1 && kept.strides[d][N - 1] % kChains != 0) return false;
  return true;
}

// One output, n terms side by side.
struct FlatShape {
  Nest<2> kept;  // the output, the input: one element each
  Nest<1> folded;
};
inline FlatShape flat_shape(std::int64_t n) {
  FlatShape s;
  s.kept.dims = s.folded.dims = 1;
  s.kept.sizes[0] = 1;
  s.folded.sizes[0] = n;
  s.folded.strides[0] = {1};
  return s;
}

// finish() is called once, with the fold of term 0 .. n - 1.
template <class Fold>
void fold_flat(const Fold& fold, std::int64_t n, bool packs) {
  const FlatShape s = flat_shape(n);
  fold_nest(fold, s.kept, s.folded, packs && n >= kWarp);
}

}  // namespace ringsmith::kernels::cuda
