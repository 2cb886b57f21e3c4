#include <algorithm>

#include "labs/nccl/messages.hpp"
#include "runtime/comm/device/kernel.cuh"

namespace ringsmith::nccl {

using namespace comm::cuda_ipc;

namespace {

template <class Word>
__device__ void copy_words(std::byte* to, const std::byte* from, std::uint64_t count) {
  auto* const target = reinterpret_cast<Word*>(to);
  const auto* const source = reinterpret_cast<const Word*>(from);
#pragma unroll 4
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) target[i] = source[i];
}

// Copies with all threads of the block, in the widest words that both addresses allow.
__device__ void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uintptr_t both =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint64_t done = 0;
  if (both % 16 == 0) {
    copy_words<uint4>(to, from, bytes / 16);
    done = bytes / 16 * 16;
  } else if (both % 4 == 0) {
    copy_words<std::uint32_t>(to, from, bytes / 4);
    done = bytes / 4 * 4;
  }
  copy_words<std::byte>(to + done, from + done, bytes - done);
}

// One message as handled by a block, with the pair's mailboxes at both ends.
class Post {
 public:
  __device__ explicit Post(const MessagesCall& call)
      : call_(call),
        message_(call.messages[blockIdx.x]),
        waiter_{call.timeout, reinterpret_cast<Station*>(call.memory[call.rank]), call.rank},
        mine_(box(call.rank, message_.peer)),
        theirs_(box(message_.peer, call.rank)) {}

  // Transfers slot by slot. The barriers are needed as in slots.cuh: one thread acquires and
  // releases in a hand-off, and all threads load and store.
  __device__ void carry() {
    // Number of slots that the pair has used so far.
    std::uint64_t number = message_.sends ? mine_.sent : mine_.taken;
    const std::uint64_t per_slot = mail_slot_bytes(call_.shape);
    for (std::uint64_t at = 0; at < message_.bytes; at += per_slot) {
      bool granted = true;
      if (threadIdx.x == 0) granted = message_.sends ? await_room(number) : await_slot(number);
      if (__syncthreads_and(granted) == 0) return;
      const std::uint64_t bytes = min(per_slot, message_.bytes - at);
      if (message_.sends)
        copy_bytes(slot(message_.peer, call_.rank, number), message_.data + at, bytes);
      else
        copy_bytes(message_.data + at, slot(call_.rank, message_.peer, number), bytes);
      __syncthreads();
      ++number;
      if (threadIdx.x == 0) hand_on(number);
    }
    __syncthreads();  // all threads have read the old number
    if (threadIdx.x == 0) (message_.sends ? mine_.sent : mine_.taken) = number;
  }

 private:
  __device__ bool await_slot(std::uint64_t number) const {
    const SystemAtomic<std::uint64_t> tail(mine_.tail.value);
    const auto order = order_of(End::tail_acquire);
    return wait_until(
        waiter_, Awaited::tail, message_.peer, 0, number + 1,
        [&] { return tail.load(order) > number; },
        [&] { return tail.load(cuda::memory_order_relaxed); });
  }
  __device__ bool await_room(std::uint64_t number) const {
    const SystemAtomic<std::uint64_t> head(mine_.head.value);
    const auto order = order_of(End::head_acquire);
    return wait_until(
        waiter_, Awaited::head, message_.peer, 0, number + 1 - kMailSlots,
        [&] { return number < head.load(order) + kMailSlots; },
        [&] { return head.load(cuda::memory_order_relaxed); });
  }
  __device__ void hand_on(std::uint64_t number) const {
    const auto order = order_of(message_.sends ? End::tail_release : End::head_release);
    SystemAtomic<std::uint64_t>(message_.sends ? theirs_.tail.value : theirs_.head.value)
        .store(number, order);
  }

  [[nodiscard]] __device__ Channel& box(int owner, int peer) const {
    return reinterpret_cast<Channel*>(call_.memory[owner] +
                                      mailboxes_at(call_.world, call_.shape))[peer];
  }
  [[nodiscard]] __device__ std::byte* slot(int receiver, int sender, std::uint64_t number) const {
    return call_.memory[receiver] + mail_slots_at(sender, call_.world, call_.shape) +
           number % kMailSlots * mail_slot_bytes(call_.shape);
  }

  const MessagesCall& call_;
  const Message& message_;
  Waiter waiter_;
  Channel &mine_, &theirs_;
};

__global__ void messages(const __grid_constant__ MessagesCall call) { Post(call).carry(); }

template <class T>
__global__ void divide(std::byte* data, std::uint64_t count, T by) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    store_element<T>(data + i * sizeof(T),
                     static_cast<T>(load_element<T>(data + i * sizeof(T)) / by));
}

template <class T>
__global__ void multiply(std::byte* to, const std::byte* from, std::uint64_t count,
                         kernels::Arithmetic arithmetic, Factor factor) {
  const Factored a = factored<T>(arithmetic, factor);
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    store_element<T>(to + i * sizeof(T), multiplied(load_element<T>(from + i * sizeof(T)), a));
}

constexpr unsigned kThreads = 128;
dim3 blocks_for(std::uint64_t count) {
  constexpr std::uint64_t kMostBlocks = 256;
  return dim3(static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks)));
}

template <class F>
void with_element(DType dtype, bool other_sign, F&& f) {
  if (other_sign)
    with_other_sign(dtype, f);
  else
    with_type(dtype, f);
}

}  // namespace

void load_messages() {
  std::vector<const void*> kernels{reinterpret_cast<const void*>(messages)};
  const auto add = [&]<class T>(TypeTag<T>) {
    kernels.push_back(reinterpret_cast<const void*>(multiply<T>));
    if constexpr (std::is_integral_v<T>)
      kernels.push_back(reinterpret_cast<const void*>(divide<T>));
  };
  for_all_types(add);
  for_other_signs(add);
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes{};
    cuda_check(cudaFuncGetAttributes(&attributes, kernel));
  }
}

void launch_messages(const MessagesCall& call, CUstream_st* stream) {
  launch(messages, dim3(static_cast<unsigned>(call.count)), block_of(call), 0, stream, call);
}

void launch_divide(DType dtype, bool other_sign, std::byte* data, std::uint64_t count, int by,
                   CUstream_st* stream) {
  if (count == 0) return;
  with_element(dtype, other_sign, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_integral_v<T>)
      launch(divide<T>, blocks_for(count), dim3(kThreads), 0, stream, data, count,
             static_cast<T>(by));
  });
}

void launch_multiply(DType dtype, bool other_sign, std::byte* to, const std::byte* from,
                     std::uint64_t count, const kernels::Arithmetic& arithmetic,
                     const Factor& factor, CUstream_st* stream) {
  if (count == 0) return;
  with_element(dtype, other_sign, [&]<class T>(TypeTag<T>) {
    launch(multiply<T>, blocks_for(count), dim3(kThreads), 0, stream, to, from, count, arithmetic,
           factor);
  });
}

}  // namespace ringsmith::nccl
