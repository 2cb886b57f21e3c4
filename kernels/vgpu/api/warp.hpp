// Warp shuffles and votes: 32 neighbouring threads exchange registers.
//
// All lanes named in the mask meet at the call. As on the device, a shuffle orders no memory (that
// is
// __syncwarp's), and a lane that takes part in nothing has no value: reading it gives a pattern of
// ones, which is NaN in every float.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/vgpu/api/thread.hpp"

namespace vgpu {

enum class Vote : std::uint8_t { all, any, ballot };

// The value that lane `from` (0 to 31) brought to this meeting.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned from, const Source& where);
unsigned vote(Vote kind, unsigned mask, bool predicate, const Source& where);
void sync_warp(unsigned mask, const Source& where);
unsigned lane();

template <class T>
T shuffle_value(unsigned mask, T value, unsigned from, const Source& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, from, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace vgpu

// width splits the warp into groups of that many lanes; a lane whose partner lies outside its group
// keeps its own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              vgpu::Source where = vgpu::Source::current()) {
  const unsigned group = vgpu::lane() & ~(static_cast<unsigned>(width) - 1);
  return vgpu::shuffle_value(
      mask, value, group + (static_cast<unsigned>(from) & (static_cast<unsigned>(width) - 1)),
      where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 vgpu::Source where = vgpu::Source::current()) {
  const unsigned lane = vgpu::lane(), in_group = lane & (static_cast<unsigned>(width) - 1);
  return vgpu::shuffle_value(mask, value, delta <= in_group ? lane - delta : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   vgpu::Source where = vgpu::Source::current()) {
  const unsigned lane = vgpu::lane(), in_group = lane & (static_cast<unsigned>(width) - 1);
  return vgpu::shuffle_value(
      mask, value, delta < static_cast<unsigned>(width) - in_group ? lane + delta : lane, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  vgpu::Source where = vgpu::Source::current()) {
  const unsigned lane = vgpu::lane(), from = lane ^ static_cast<unsigned>(lanes);
  const unsigned group_end = (lane | (static_cast<unsigned>(width) - 1)) + 1;
  return vgpu::shuffle_value(mask, value, from < group_end ? from : lane, where);
}

inline int __all_sync(unsigned mask, int predicate, vgpu::Source where = vgpu::Source::current()) {
  return static_cast<int>(vgpu::vote(vgpu::Vote::all, mask, predicate != 0, where));
}
inline int __any_sync(unsigned mask, int predicate, vgpu::Source where = vgpu::Source::current()) {
  return static_cast<int>(vgpu::vote(vgpu::Vote::any, mask, predicate != 0, where));
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              vgpu::Source where = vgpu::Source::current()) {
  return vgpu::vote(vgpu::Vote::ballot, mask, predicate != 0, where);
}
// Orders memory among the lanes of the mask.
inline void __syncwarp(unsigned mask = 0xffffffffU, vgpu::Source where = vgpu::Source::current()) {
  vgpu::sync_warp(mask, where);
}
