// Unusual and correct: one thread does everything, so no barrier is needed; fetch_add changes the
// flags; in a world of one, cudaMemcpyAsync copies the input; the ring is two loops, with lambdas
// for send and receive.
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
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS)
    throw std::runtime_error("not device memory");
  Offer offer{{}, reinterpret_cast<CUdeviceptr>(memory) - base, memory, process};
  kit::check(cudaIpcGetMemHandle(&offer.handle, reinterpret_cast<void*>(base + offer.offset)),
             "cudaIpcGetMemHandle");
  return offer;
}
inline Mapped open_offer(const Offer& offer, int my_process) {
  void* base = nullptr;
  if (offer.process != my_process)
    kit::check(cudaIpcOpenMemHandle(&base, offer.handle, cudaIpcMemLazyEnablePeerAccess),
               "cudaIpcOpenMemHandle");
  return {base ? static_cast<char*>(base) + offer.offset : offer.pointer, base};
}
inline void close_mapped(Mapped& mapped) {
  void* const base = std::exchange(mapped.base, nullptr);
  if (base != nullptr) kit::check(cudaIpcCloseMemHandle(base), "cudaIpcCloseMemHandle");
}

template <class T>
__global__ void alone(Ring ring, const T* input, T* output, std::int64_t count) {
  using Flag = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
  const std::int64_t world = ring.world;
  const auto begin_of = [&](std::int64_t c) { return c * (count / world) + min(c, count % world); };
  for (std::int64_t at = 0; at * world < count + world; at += ring.slot_elements) {
    const auto piece = [&](std::int64_t c) {
      const std::int64_t first = min(begin_of(c) + at, begin_of(c + 1));
      return int4{int(first), int(min(first + ring.slot_elements, begin_of(c + 1))), 0, 0};
    };
    const auto slot = [&](Station* station, std::uint64_t message, std::int64_t i) -> T& {
      const std::uint64_t lies = message % std::uint64_t(ring.slots);
      return reinterpret_cast<T*>(station + 1)[std::int64_t(lies) * ring.slot_elements + i];
    };
    const auto send = [&](std::int64_t c, const T* from) {
      const int4 p = piece(c);
      if (p.x >= p.y) return;
      while (Flag(ring.mine->head).load() + std::uint64_t(ring.slots) == ring.mine->sent) {
      }
      for (int i = p.x; i < p.y; ++i) slot(ring.next, ring.mine->sent, i - p.x) = from[i];
      ++ring.mine->sent;
      Flag(ring.next->tail).fetch_add(1);
    };
    const auto receive = [&](std::int64_t c, bool add) {
      const int4 p = piece(c);
      if (p.x >= p.y) return;
      while (Flag(ring.mine->tail).load() == ring.mine->taken) {
      }
      for (int i = p.x; i < p.y; ++i) {
        T sum = slot(ring.mine, ring.mine->taken, i - p.x);
        if (add) sum += input[i];
        output[i] = sum;
      }
      ++ring.mine->taken;
      Flag(ring.previous->head).fetch_add(1);
    };
    const auto behind = [&](std::int64_t j) { return (ring.rank - j + 2 * world) % world; };
    send(behind(1), input);
    for (std::int64_t j = 2; j <= world; ++j) {
      receive(behind(j), true);
      send(behind(j), output);
    }
    for (std::int64_t j = 1; j < world; ++j) {
      receive(behind(j), false);
      if (j < world - 1) send(behind(j), output);
    }
  }
}

template <class T>
void all_reduce(const Ring& ring, cudaStream_t stream, const T* input, T* output,
                std::int64_t count) {
  if (ring.world > 1)
    kit::launch(alone<T>, 1, 1, 0, stream, ring, input, output, count);
  else if (input != output && count > 0)
    kit::check(cudaMemcpyAsync(output, input, std::size_t(count) * sizeof(T),
                               cudaMemcpyDeviceToDevice, stream),
               "copy");
}

}  // namespace lab07
