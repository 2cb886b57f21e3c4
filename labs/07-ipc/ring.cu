// Lab 07: the ring of lab 06 on GPUs. In each call, one kernel per rank stores directly into the
// memory of the next rank's device and waits for the previous rank's stores, without the host.
//
//      previous rank                 this rank                      next rank
//    stores slots, tail --->   waits for tail, loads slots
//                              stores slots, tail   --->    waits for tail, loads slots
//    waits for head     <---   stores head: slots are free
//
// A slot holds one message of up to slot_elements elements. tail and head count messages since the
// ranks met: they grow from one call to the next, and are never reset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>

#include "labs/kit/cuda.hpp"
#include "labs/kit/todo.hpp"

namespace lab07 {

// ---- given: the data that ranks exchange, and the layout of each device's memory ----

// Tells other ranks where to find a piece of this rank's device memory. A handle names the whole
// block that contains the piece.
struct Offer {
  cudaIpcMemHandle_t handle;
  std::uint64_t offset;  // bytes from the base of that block
  void* pointer;         // for ranks of the same process
  int process;           // the process that offers
};
struct Mapped {
  void* pointer = nullptr;  // the piece, as this rank can use it
  void* base = nullptr;     // from cudaIpcOpenMemHandle; null if nothing was opened
};

// One per rank, followed by its slots. Before the first call, all counters of all ranks are equal,
// but not necessarily 0. Do not change this struct.
struct Station {
  alignas(128) std::uint64_t tail;  // set by the previous rank: messages put into this rank's slots
  alignas(128) std::uint64_t head;  // set by the next rank: messages of this rank that it has taken
  alignas(128) std::uint64_t sent;  // private to this rank, kept from call to call
  std::uint64_t taken;
};
struct Ring {
  int rank, world;
  Station *mine, *previous, *next;
  int slots;                   // of each station: 2 or more
  std::int64_t slot_elements;  // 1 or more
};
template <class T>
__device__ T* slot_of(const Ring& ring, Station* station, std::uint64_t message) {
  return reinterpret_cast<T*>(station + 1) +
         message % std::uint64_t(ring.slots) * std::uint64_t(ring.slot_elements);
}
using Flag = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

// ---- yours ----

// Task 1. Returns an offer of device memory of this process. cuMemGetAddressRange (cuda.h) returns
// the base of the block that contains the memory.
inline Offer make_offer(void* memory, int process) {
#ifdef SOLUTION
  Offer offer{};
  offer.pointer = memory;
  offer.process = process;
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS)
    throw std::runtime_error("make_offer: not device memory");
  offer.offset = reinterpret_cast<CUdeviceptr>(memory) - base;
  kit::check(cudaIpcGetMemHandle(&offer.handle, memory), "cudaIpcGetMemHandle");
  return offer;
#else
  (void)memory, (void)process;
  kit::todo("task 1, make_offer");
#endif
}

// Task 2. Maps the memory of an offer for the current device. A process cannot open its own
// handles: within one process, use the pointer. Closing a closed Mapped is a no-op.
inline Mapped open_offer(const Offer& offer, int my_process) {
#ifdef SOLUTION
  if (offer.process == my_process) return {offer.pointer, nullptr};
  void* base = nullptr;
  kit::check(cudaIpcOpenMemHandle(&base, offer.handle, cudaIpcMemLazyEnablePeerAccess),
             "cudaIpcOpenMemHandle");
  return {static_cast<std::byte*>(base) + offer.offset, base};
#else
  (void)offer, (void)my_process;
  kit::todo("task 2, open_offer");
#endif
}
inline void close_mapped(Mapped& mapped) {
#ifdef SOLUTION
  if (mapped.base != nullptr)
    kit::check(cudaIpcCloseMemHandle(mapped.base), "cudaIpcCloseMemHandle");
  mapped = {};
#else
  (void)mapped;
  kit::todo("task 2, close_mapped");
#endif
}

// Task 3. The sender waits for room and posts messages; the receiver waits for messages and returns
// slots. One thread of the block calls these functions. The counts cover the whole lifetime of the
// ring.
__device__ inline void wait_message(const Ring& ring, std::uint64_t taken) {
#ifdef SOLUTION
  while (Flag(ring.mine->tail).load(cuda::memory_order_acquire) <= taken) {
  }
#else
  (void)ring, (void)taken;
  kit::todo("task 3, wait_message: until message number `taken` lies in my slot");
#endif
}
__device__ inline void wait_room(const Ring& ring, std::uint64_t sent) {
#ifdef SOLUTION
  while (Flag(ring.mine->head).load(cuda::memory_order_acquire) + std::uint64_t(ring.slots) <=
         sent) {
  }
#else
  (void)ring, (void)sent;
  kit::todo("task 3, wait_room: until the next rank has a slot for message number `sent`");
#endif
}
__device__ inline void post_message(const Ring& ring, std::uint64_t sent) {
#ifdef SOLUTION
  Flag(ring.next->tail).store(sent, cuda::memory_order_release);
#else
  (void)ring, (void)sent;
  kit::todo("task 3, post_message: tell the next rank that `sent` messages have been put");
#endif
}
__device__ inline void return_slot(const Ring& ring, std::uint64_t taken) {
#ifdef SOLUTION
  Flag(ring.previous->head).store(taken, cuda::memory_order_release);
#else
  (void)ring, (void)taken;
  kit::todo("task 3, return_slot: tell the previous rank that `taken` messages have been taken");
#endif
}

// Task 4. Computes output = the sum of all ranks' inputs, on every rank, with one block. The chunks
// of lab 06 are cut into pieces that fit a slot, so that a long chunk uses several slots
// simultaneously. output may be input. T has += and may be larger than 8 bytes.
template <class T>
__global__ void ring_kernel(Ring ring, const T* input, T* output, std::int64_t count) {
#ifdef SOLUTION
  const int world = ring.world;
  const std::int64_t t = threadIdx.x, base = count / world, longer = count % world;
  std::uint64_t sent = ring.mine->sent, taken = ring.mine->taken;
  for (std::int64_t at = 0; at < base + (longer > 0); at += ring.slot_elements)
    for (int step = 0; step < 2 * world - 1; ++step) {
      const int chunk = (ring.rank - 1 - step + 2 * world) % world;
      const std::int64_t first = chunk * base + min(std::int64_t{chunk}, longer) + at;
      const std::int64_t n = min(ring.slot_elements, base + (chunk < longer) - at);
      if (n <= 0) continue;  // its sender skips it, too
      const bool own = step < world, kept = step >= world - 1;
      const bool receives = step > 0, sends = step < 2 * world - 2;
      if (t == 0 && receives) wait_message(ring, taken);
      if (t == 0 && sends) wait_room(ring, sent);
      __syncthreads();  // makes the acquired data visible to all threads
      const T* const from = slot_of<T>(ring, ring.mine, taken);
      T* const to = slot_of<T>(ring, ring.next, sent);
      for (std::int64_t i = t; i < n; i += blockDim.x) {
        T value = own ? input[first + i] : from[i];
        if (own && receives) value += from[i];
        if (kept) output[first + i] = value;
        if (sends) to[i] = value;
      }
      __syncthreads();  // all threads have loaded and stored: one may announce it
      taken += receives;
      sent += sends;
      if (t == 0 && receives) return_slot(ring, taken);
      if (t == 0 && sends) post_message(ring, sent);
    }
  __syncthreads();  // all threads have read the counters
  if (t == 0) {
    ring.mine->sent = sent;
    ring.mine->taken = taken;
  }
#else
  (void)ring, (void)input, (void)output, (void)count;
  kit::todo("task 4, ring_kernel");
#endif
}

// Task 5. Enqueues one all-reduce on the stream and returns, without waiting for the device or for
// the other ranks. The next call may follow immediately.
template <class T>
void all_reduce(const Ring& ring, cudaStream_t stream, const T* input, T* output,
                std::int64_t count) {
#ifdef SOLUTION
  kit::launch(ring_kernel<T>, 1, 32, 0, stream, ring, input, output, count);
#else
  (void)ring, (void)stream, (void)input, (void)output, (void)count;
  kit::todo("task 5, all_reduce");
#endif
}

}  // namespace lab07
