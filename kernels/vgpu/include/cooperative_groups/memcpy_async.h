// <cooperative_groups/memcpy_async.h> of the emulator. The threads of the group copy pieces of 16
// bytes by cp.async (api/tensor.hpp), which arrive when their thread waits, or earlier. wait() then
// synchronizes the group, so a missing wait() shows up as old data.
#pragma once

#include <cooperative_groups.h>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cooperative_groups {

template <class Group, class T>
void memcpy_async(const Group& group, T* to, const T* from, std::size_t bytes,
                  vgpu::Source where = vgpu::Source::current()) {
  constexpr std::size_t kPiece = 16;
  auto* target = reinterpret_cast<unsigned char*>(to);
  const auto* source = reinterpret_cast<const unsigned char*>(from);
  const bool aligned = reinterpret_cast<std::uintptr_t>(target) % kPiece == 0 &&
                       reinterpret_cast<std::uintptr_t>(source) % kPiece == 0;
  for (std::size_t at = group.thread_rank() * kPiece; at < bytes; at += group.size() * kPiece) {
    if (aligned && bytes - at >= kPiece)
      vgpu::copy_async(target + at, source + at, kPiece, where);
    else
      std::memcpy(target + at, source + at, bytes - at < kPiece ? bytes - at : kPiece);
  }
  vgpu::commit_copies();
}
// Waits for all copies but the last `n` of the group.
template <unsigned n, class Group>
void wait_prior(const Group& group, vgpu::Source where = vgpu::Source::current()) {
  vgpu::wait_for_copies(n);
  group.sync(where);
}
template <class Group>
void wait(const Group& group, vgpu::Source where = vgpu::Source::current()) {
  wait_prior<0>(group, where);
}

}  // namespace cooperative_groups
