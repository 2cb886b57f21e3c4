// The ring of the kernel engine: one kernel per collective.
//
//        .--> 0 ---> 1 --.      behind(j): the chunk of the position j places behind
//        '--- 3 <--- 2 <-'
//
// All-reduce on four ranks, as seen by position 0; position p adds p to the chunk numbers, modulo
// 4. x2 is rank 2's contribution to this chunk.
//
//     step  verb                            chunk  sent to position 1
//     0     send                behind(1)   3      x0
//     1     recvReduceSend      behind(2)   2      x3 + x0
//     2     recvReduceSend      behind(3)   1      (x2 + x3) + x0
//     3     recvReduceCopySend  behind(0)   0      ((x1 + x2) + x3) + x0: complete, and kept
//     4     recvCopySend        behind(1)   3      chunk 3, complete, and kept
//     5     recvCopySend        behind(2)   2      chunk 2, complete, and kept
//     6     recv                behind(3)   1      nothing: chunk 1, complete, is kept
//
// Each sum is computed once, along one path, and then copied. So all ranks get the same bits, which
// are also those that ring_all_reduce (runtime/comm/schedule/ring.hpp) gives on any executor.
//
// The classes that execute the steps handle the memory and the memory order: slots.cuh for large
// messages, packets.cuh for small ones. A kernel computes its steps in a loop, so that the code of
// a step is compiled once and keeps its state in registers.
#include "runtime/comm/device/kernel.cuh"
#include "runtime/comm/device/packets.cuh"
#include "runtime/comm/device/slots.cuh"

namespace ringsmith::comm::cuda_ipc {

namespace {

struct Behind {
  int position, world;
  __device__ int operator()(int j) const {
    return position >= j ? position - j : position - j + world;
  }
};

__device__ RingStep all_reduce(int s, const Behind& behind) {
  const int world = behind.world;
  if (s == 0) return {kSend, behind(1)};
  if (s < world - 1) return {kRecvReduceSend, behind(s + 1)};
  if (s == world - 1) return {kRecvReduceCopySend, behind(0)};
  if (s < 2 * world - 2) return {kRecvCopySend, behind(s - (world - 1))};
  if (s == 2 * world - 2) return {kRecv, behind(world - 1)};
  return kNoStep;
}

__device__ RingStep reduce_scatter(int s, const Behind& behind) {
  if (s == 0) return {kSend, behind(1)};
  if (s < behind.world - 1) return {kRecvReduceSend, behind(s + 1)};
  if (s == behind.world - 1) return {kRecvReduceCopy, behind(0)};
  return kNoStep;
}

__device__ RingStep all_gather(int s, const Behind& behind) {
  if (s == 0) return {kCopySend, behind(0)};
  if (s < behind.world - 1) return {kRecvCopySend, behind(s)};
  if (s == behind.world - 1) return {kRecv, behind(behind.world - 1)};
  return kNoStep;
}

// A chain from the root to the last position.
__device__ RingStep broadcast(int s, const Behind& behind) {
  if (s > 0) return kNoStep;
  if (behind.position == 0) return {kSend, 0};
  return {behind.position < behind.world - 1 ? kRecvCopySend : kRecv, 0};
}

// A chain to the root, which is at the last position.
__device__ RingStep reduce(int s, const Behind& behind) {
  if (s > 0) return kNoStep;
  if (behind.position == 0) return {kSend, 0};
  return {behind.position < behind.world - 1 ? kRecvReduceSend : kRecvReduceCopy, 0};
}

__device__ RingStep step_of(Collective collective, int s, const Behind& behind) {
  switch (collective) {
    case Collective::all_reduce:
      return all_reduce(s, behind);
    case Collective::reduce_scatter:
      return reduce_scatter(s, behind);
    case Collective::all_gather:
      return all_gather(s, behind);
    case Collective::broadcast:
      return broadcast(s, behind);
    case Collective::reduce:
      return reduce(s, behind);
    default:  // not a ring: schedule/select.cpp
      return kNoStep;
  }
}

template <class Taker>
__device__ void run(const RingCall& call) {
  Taker taker(call);
  const Behind behind{call.position, call.world};
  const std::uint64_t passes = taker.passes();
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    int s = 0;
    for (RingStep step = step_of(call.collective, s, behind); step.verb != kNoVerb && taker.alive();
         step = step_of(call.collective, ++s, behind))
      taker.take(step, s, pass);
  }
  taker.finish();
}

template <class T>
__global__ void __launch_bounds__(ring_threads(kMostThreads), 1)
    ring(const __grid_constant__ RingCall call) {
  run<Slots<T>>(call);
}
template <class T>
__global__ void __launch_bounds__(kMostThreads, 1)
    packet_ring(const __grid_constant__ RingCall call) {
  run<Packets<T>>(call);
}

}  // namespace

void launch_ring(const RingCall& call, CUstream_st* stream) {
  const auto start = [&]<class T>(TypeTag<T>) {
    launch(ring<T>, grid_of(call), dim3(ring_threads(call.shape.threads)), 0, stream, call);
  };
  if (call.other_sign)
    with_other_sign(call.dtype, start);
  else
    with_type(call.dtype, start);
}

void launch_packet_ring(const RingCall& asked, CUstream_st* stream) {
  RingCall call = asked;
  call.packets = packets_at(call.packet_flag, call.world);
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    launch(packet_ring<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

std::vector<const void*> ring_kernels() {
  std::vector<const void*> all;
  for_all_types([&]<class T>(TypeTag<T>) {
    all.push_back(reinterpret_cast<const void*>(ring<T>));
    all.push_back(reinterpret_cast<const void*>(packet_ring<T>));
  });
  for_other_signs(
      [&]<class T>(TypeTag<T>) { all.push_back(reinterpret_cast<const void*>(ring<T>)); });
  return all;
}

}  // namespace ringsmith::comm::cuda_ipc
