// Which of n items is wrong, first of all: the answer comes back to the host, so that a bad index
// is an error that names it, not garbage. One kernel and one wait.
#pragma once

#include <optional>

#include "kernels/cuda/grid.cuh"
#include "runtime/device/transfer.hpp"

namespace ringsmith::kernels::cuda {

// The smallest i < n for which bad(i), a device function, is true. Waits for the stream.
template <class Bad>
std::optional<std::int64_t> first_bad(std::int64_t n, const Bad& bad) {
  using Word = unsigned long long;
  constexpr Word kNone = ~Word{0};
  const PinnedBlock block(Bytes(sizeof(Word)));  // a device writes to it only if something is wrong
  Word* const first = reinterpret_cast<Word*>(block.data());
  *first = kNone;
  for_each(n, [=] __device__(std::int64_t i) {
    if (bad(i)) atomicMin(first, static_cast<Word>(i));
  });
  Stream::current().synchronize();
  if (*first == kNone) return {};
  return static_cast<std::int64_t>(*first);
}

// One element of device memory. Waits for the stream.
template <class T>
T read_back(const T* p) {
  const PinnedBlock block(Bytes(sizeof(T)));
  cuda_check(cudaMemcpyAsync(block.data(), p, sizeof(T), cudaMemcpyDeviceToHost, stream()));
  Stream::current().synchronize();
  return *reinterpret_cast<const T*>(block.data());
}

}  // namespace ringsmith::kernels::cuda
