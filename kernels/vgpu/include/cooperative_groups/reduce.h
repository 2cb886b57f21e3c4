// <cooperative_groups/reduce.h> of the emulator. Tiles combine pairs at distance 1, 2, 4, ...,
// other lanes of a warp one after the other.
#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

// All threads of the tile get the result.
template <unsigned N, class Parent, class T, class Combine>
T reduce(const thread_block_tile<N, Parent>& tile, T x, Combine combine,
         vgpu::Source where = vgpu::Source::current()) {
  for (unsigned distance = 1; distance < N; distance *= 2)
    x = combine(x, tile.shfl_xor(x, distance, where));
  return x;
}
template <class T, class Combine>
T reduce(const coalesced_group& group, T x, Combine combine,
         vgpu::Source where = vgpu::Source::current()) {
  T sum = group.shfl(x, 0, where);
  for (unsigned i = 1; i < group.size(); ++i) sum = combine(sum, group.shfl(x, i, where));
  return sum;
}

}  // namespace cooperative_groups
