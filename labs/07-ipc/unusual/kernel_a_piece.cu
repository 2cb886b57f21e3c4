// Unusual and correct: one kernel per piece, in order on the stream; flags are stored relaxed after
// fences and loaded relaxed before them; every thread polls; whole messages are moved from the slot
// to registers before anything is sent.
#pragma once

#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>

#include "labs/kit/cuda.hpp"

namespace lab07 {

struct Offer {
  cudaIpcMemHandle_t handle;
  std::uint64_t offset;
  void* pointer;
  int process;
};
struct Mapped {
  void* pointer = nullptr;
  void* base = nullptr;
};
struct Station {
  alignas(128) std::uint64_t tail;
  alignas(128) std::uint64_t head;
  alignas(128) std::uint64_t sent;
  std::uint64_t taken;
};
struct Ring {
  int rank, world;
  Station *mine, *previous, *next;
  int slots;
  std::int64_t slot_elements;
};

inline Offer make_offer(void* memory, int process) {
  Offer offer{{}, 0, memory, process};
  CUdeviceptr base = 0;
  std::size_t size = 0;
  (void)cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(memory));
  void* const block = reinterpret_cast<void*>(base);
  offer.offset = std::uint64_t(static_cast<std::byte*>(memory) - static_cast<std::byte*>(block));
  kit::check(cudaIpcGetMemHandle(&offer.handle, memory), "handle");
  return offer;
}
inline Mapped open_offer(const Offer& offer, int my_process) {
  Mapped mapped{offer.pointer, nullptr};
  if (offer.process == my_process) return mapped;
  kit::check(cudaIpcOpenMemHandle(&mapped.base, offer.handle, cudaIpcMemLazyEnablePeerAccess),
             "open");
  mapped.pointer = static_cast<char*>(mapped.base) + offer.offset;
  return mapped;
}
inline void close_mapped(Mapped& mapped) {
  if (mapped.base) kit::check(cudaIpcCloseMemHandle(mapped.base), "close");
  mapped = Mapped{};
}

__device__ inline std::uint64_t look(std::uint64_t& flag) {
  return cuda::atomic_ref<std::uint64_t>(flag).load(cuda::memory_order_relaxed);
}
__device__ inline void tell(std::uint64_t& flag, std::uint64_t value) {
  cuda::atomic_thread_fence(cuda::memory_order_release);
  cuda::atomic_ref<std::uint64_t>(flag).store(value, cuda::memory_order_relaxed);
}

// Processes the elements [from, from + piece) of every chunk, in both phases of the ring.
template <class T>
__global__ void walk(Ring ring, std::int64_t from, std::int64_t piece, const T* input, T* output,
                     std::int64_t count) {
  constexpr int kMost = 8;  // elements that a thread keeps in registers
  const int world = ring.world;
  const std::int64_t t = threadIdx.x;
  std::uint64_t sent = ring.mine->sent, taken = ring.mine->taken;
  for (int step = 0; step < 2 * world - 1; ++step) {
    const int chunk = (ring.rank + 2 * world - 1 - step) % world;
    // Chunk c begins after the shares of all chunks before it; the longer chunks are first.
    std::int64_t begin = 0;
    for (int c = 0; c < chunk; ++c) begin += (count + world - 1 - c) / world;
    const std::int64_t length = (count + world - 1 - chunk) / world;
    const std::int64_t n = min(piece, length - from);
    if (n <= 0) continue;
    T kept[kMost];
    const bool receives = step > 0, sends = step + 2 < 2 * world, own = step < world;
    if (receives) {
      while (look(ring.mine->tail) == taken) {
      }
      cuda::atomic_thread_fence(cuda::memory_order_acquire);
      const T* const slot = reinterpret_cast<const T*>(ring.mine + 1) +
                            taken % std::uint64_t(ring.slots) * std::uint64_t(ring.slot_elements);
      for (std::int64_t i = t, k = 0; i < n; i += blockDim.x) kept[k++] = slot[i];
      __syncthreads();
      ++taken;
      if (t == 0) tell(ring.previous->head, taken);
    }
    for (std::int64_t i = t, k = 0; i < n; i += blockDim.x, ++k) {
      T value = own ? input[begin + from + i] : T{};
      if (receives) value += kept[k];
      kept[k] = value;
      if (step >= world - 1) output[begin + from + i] = value;
    }
    if (sends) {
      while (sent - look(ring.mine->head) >= std::uint64_t(ring.slots)) {
      }
      cuda::atomic_thread_fence(cuda::memory_order_acquire);
      T* const slot = reinterpret_cast<T*>(ring.next + 1) +
                      sent % std::uint64_t(ring.slots) * std::uint64_t(ring.slot_elements);
      for (std::int64_t i = t, k = 0; i < n; i += blockDim.x) slot[i] = kept[k++];
      __syncthreads();
      ++sent;
      if (t == 0) tell(ring.next->tail, sent);
    }
  }
  __syncthreads();
  if (t == blockDim.x - 1) {
    ring.mine->sent = sent;
    ring.mine->taken = taken;
  }
}

template <class T>
void all_reduce(const Ring& ring, cudaStream_t stream, const T* input, T* output,
                std::int64_t count) {
  const std::int64_t longest = (count + ring.world - 1) / ring.world;
  const std::int64_t piece = std::min<std::int64_t>(ring.slot_elements, 8 * 16);
  for (std::int64_t from = 0; from < longest; from += piece)
    kit::launch(walk<T>, 1, 16, 0, stream, ring, from, piece, input, output, count);
}

}  // namespace lab07
