// Executes the steps of a ring with packets: NCCL's low-latency protocol ("LL"). Each atomic store
// writes data and a flag together:
//
//     word  [ 4 bytes of data | number of the call ]        8 bytes, stored and loaded atomically
//     line  [ word ][ word ]                                8 bytes of data, one 16-byte access
//
// The receiver polls the word that contains the data. There is no fence, counter or barrier, and
// threads proceed independently. Half of the bytes sent are flags, so the protocol is for small
// messages.
//
// Relaxed order is enough, because data and flag are one word and no other access depends on it. A
// word may be overwritten two calls later: a call writes each line once, and consecutive calls
// (flag, flag + 1) use different halves. To finish call n, a rank must receive data to which every
// other rank has contributed after beginning call n, and a rank begins call n only after its kernel
// of call n - 1 has ended. So once a rank is in call n + 1, no rank reads packets of call n - 1.
// This rules out broadcast and reduce, in which one rank receives nothing. The number has 32 bits;
// the host zeroes the packets when it wraps around (kernel_engine.cpp).
#pragma once

#include "runtime/comm/device/kernel.cuh"

namespace ringsmith::comm::cuda_ipc {

// Eight bytes of data, as elements and as the data halves of two words.
template <class T>
union Line {
  __device__ Line() : word{0, 0} {}
  Pack<T, static_cast<int>(kLineData / sizeof(T))> data;
  std::uint32_t word[2];
};

template <class T>
__device__ Line<T> load_line(const std::byte* p, std::uint64_t elements) {
  Line<T> line;
#pragma unroll
  for (std::uint64_t i = 0; i < kLineData / sizeof(T); ++i)
    if (i < elements) line.data.at[i] = load_element<T>(p + i * sizeof(T));
  return line;
}
template <class T>
__device__ void store_line(std::byte* p, std::uint64_t elements, const Line<T>& line) {
#pragma unroll
  for (std::uint64_t i = 0; i < kLineData / sizeof(T); ++i)
    if (i < elements) store_element(p + i * sizeof(T), line.data.at[i]);
}

// Stores and loads both words of a line with one instruction. PTX defines it as one relaxed access
// to each word, in no order, so each word needs its own flag. The emulator makes two accesses.
__device__ inline void store_words(std::byte* where, std::uint64_t first, std::uint64_t second) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(where)),
      "l"(first), "l"(second)
      : "memory");
#else
  auto* const words = reinterpret_cast<std::uint64_t*>(where);
  SystemAtomic<std::uint64_t>(words[0]).store(first, cuda::memory_order_relaxed);
  SystemAtomic<std::uint64_t>(words[1]).store(second, cuda::memory_order_relaxed);
#endif
}
// True if both words have the flag. Until then, call it again with the same variables, which must
// be 0 initially. No call has the number 0. The emulator's version polls one word at a time, so
// that the emulator can detect that a thread waits.
__device__ inline bool load_words(std::byte* where, std::uint32_t flag, std::uint64_t& first,
                                  std::uint64_t& second) {
#ifdef __CUDA_ARCH__
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(__cvta_generic_to_global(where))
               : "memory");
#else
  auto* const words = reinterpret_cast<std::uint64_t*>(where);
  if (first >> 32 != flag)
    first = SystemAtomic<std::uint64_t>(words[0]).load(cuda::memory_order_relaxed);
  if (first >> 32 == flag)
    second = SystemAtomic<std::uint64_t>(words[1]).load(cuda::memory_order_relaxed);
#endif
  return first >> 32 == flag && second >> 32 == flag;
}

template <class T>
__device__ void put_line(std::byte* where, const Line<T>& line, std::uint32_t flag) {
  const std::uint64_t high = std::uint64_t{flag} << 32;
  store_words(where, high | line.word[0], high | line.word[1]);
}
// Returns false if the wait failed.
template <class T>
__device__ bool take_line(const Waiter& waiter, std::byte* where, std::uint32_t flag, int peer,
                          std::int64_t step, Line<T>& line) {
  std::uint64_t first = 0, second = 0;
  const bool here = wait_until(
      waiter, Awaited::packet, peer, step, flag,
      [&] { return load_words(where, flag, first, second); },
      [&] { return (first >> 32 == flag ? second : first) >> 32; });
  line.word[0] = static_cast<std::uint32_t>(first);
  line.word[1] = static_cast<std::uint32_t>(second);
  return here;
}

template <class T>
class Packets {
 public:
  __device__ explicit Packets(const RingCall& call)
      : call_(call), waiter_{call.timeout, reinterpret_cast<Station*>(call.mine), call.rank} {}

  [[nodiscard]] __device__ static std::uint64_t passes() { return 1; }
  [[nodiscard]] __device__ bool alive() const { return alive_; }

  __device__ void take(RingStep step, int s, std::uint64_t /*pass*/) {
    constexpr std::uint64_t kLanes = kLineData / sizeof(T);
    const bool receives = (step.verb & kReceives) != 0, sends = (step.verb & kSends) != 0;
    const Range& all = call_.chunks[step.chunk];
    const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
    std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    for (; i * kLanes < all.count; i += threads) {
      const std::uint64_t element = all.begin + i * kLanes, n = min(kLanes, all.count - i * kLanes);
      Line<T> line, message;
      if (receives) {
        alive_ = take_line(waiter_, line_of(call_.mine, received_, i), call_.packet_flag,
                           call_.previous_rank, s, message);
        if (!alive_) return;
      }
      if ((step.verb & kAddsOwn) != 0) {
        line = load_line<T>(call_.input + (element - call_.input_begin) * sizeof(T), n);
        kernels::cuda::visit_reduction(call_.arithmetic.reduction, [&](auto reduction) {
          scale_pack(line.data, call_.arithmetic);
          if (receives) combine_pack<decltype(reduction)::value>(line.data, message.data);
        });
      } else {
        line = message;
      }
      if ((step.verb & kKeeps) != 0)
        store_line(call_.output + (element - call_.output_begin) * sizeof(T), n, line);
      if (sends) put_line(line_of(call_.next, sent_, i), line, call_.packet_flag);
    }
    received_ += receives ? 1 : 0;
    sent_ += sends ? 1 : 0;
  }
  __device__ void finish() {}

 private:
  // Returns the address of a line. Every message of a call has its own lines.
  [[nodiscard]] __device__ std::byte* line_of(std::byte* station, std::uint64_t message,
                                              std::uint64_t line) const {
    return station + call_.packets + (message * call_.packet_lines + line) * kLineBytes;
  }

  const RingCall& call_;
  Waiter waiter_;
  std::uint64_t received_ = 0, sent_ = 0;  // messages of this call
  bool alive_ = true;
};

}  // namespace ringsmith::comm::cuda_ipc
