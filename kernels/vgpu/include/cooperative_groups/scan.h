// <cooperative_groups/scan.h> of the emulator, for groups of at most 32 threads.
#pragma once

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

// Thread i gets the combination of the values of threads 0 to i.
template <class Group, class T, class Combine = plus<T>>
T inclusive_scan(const Group& group, T x, Combine combine = {},
                 vgpu::Source where = vgpu::Source::current()) {
  for (unsigned distance = 1; distance < group.size(); distance *= 2) {
    const T left = group.shfl_up(x, distance, where);
    if (group.thread_rank() >= distance) x = combine(left, x);
  }
  return x;
}
// Of the values of threads 0 to i - 1; thread 0 gets T{}.
template <class Group, class T, class Combine = plus<T>>
T exclusive_scan(const Group& group, T x, Combine combine = {},
                 vgpu::Source where = vgpu::Source::current()) {
  const T sum = inclusive_scan(group, x, combine, where);
  const T left = group.shfl_up(sum, 1, where);
  return group.thread_rank() == 0 ? T{} : left;
}

}  // namespace cooperative_groups
