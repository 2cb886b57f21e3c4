// Engine B: one kernel per collective, a ring of ranks that pass chunks to their next.
//
//        .--> 0 ---> 1 --.      behind(j): the chunk of the position that stands j places behind
//        '--- 3 <--- 2 <-'
//
// All-reduce among four, as position 0 lives through it; every other position does the same, one
// chunk further on. x2 is what rank 2 contributes to this chunk.
//
//     step  verb                            chunk  goes on to position 1
//     0     send                behind(1)   3      x0
//     1     recvReduceSend      behind(2)   2      x3 + x0
//     2     recvReduceSend      behind(3)   1      (x2 + x3) + x0
//     3     recvReduceCopySend  behind(0)   0      ((x1 + x2) + x3) + x0: complete, and kept
//     4     recvCopySend        behind(1)   3      chunk 3, complete, and kept
//     5     recvCopySend        behind(2)   2      chunk 2, complete, and kept
//     6     recv                behind(3)   1      nothing: chunk 1, complete, is kept
//
// Each element's sum is formed once, along one path, and then only copied: all ranks have the same
// bits, those of ring_all_reduce (runtime/comm/schedule/ring.hpp) on every other executor.
//
// The loops below know nothing of memory or order; that is the verbs' business: slots.cuh for large
// messages, packets.cuh for small ones.
#include "runtime/comm/device/kernel.cuh"
#include "runtime/comm/device/packets.cuh"
#include "runtime/comm/device/slots.cuh"

namespace ringsmith::comm::cuda_ipc {

namespace {

// behind(j): the chunk of the position that stands j places behind this one.
struct Behind {
  int position, world;
  __device__ int operator()(int j) const { return (position - j + world) % world; }
};

template <class Verbs>
__device__ void all_reduce(Verbs& verbs, const Behind& behind) {
  const int world = behind.world;
  verbs.send(behind(1));
  for (int j = 2; j < world; ++j) verbs.recvReduceSend(behind(j));
  verbs.recvReduceCopySend(behind(0));
  for (int j = 1; j < world - 1; ++j) verbs.recvCopySend(behind(j));
  verbs.recv(behind(world - 1));
}

template <class Verbs>
__device__ void reduce_scatter(Verbs& verbs, const Behind& behind) {
  verbs.send(behind(1));
  for (int j = 2; j < behind.world; ++j) verbs.recvReduceSend(behind(j));
  verbs.recvReduceCopy(behind(0));
}

template <class Verbs>
__device__ void all_gather(Verbs& verbs, const Behind& behind) {
  verbs.copySend(behind(0));
  for (int j = 1; j < behind.world - 1; ++j) verbs.recvCopySend(behind(j));
  verbs.recv(behind(behind.world - 1));
}

// A chain: from the root to the position before it.
template <class Verbs>
__device__ void broadcast(Verbs& verbs, const Behind& behind) {
  if (behind.position == 0)
    verbs.send(0);
  else if (behind.position < behind.world - 1)
    verbs.recvCopySend(0);
  else
    verbs.recv(0);
}

// The same chain, to the root, which stands last.
template <class Verbs>
__device__ void reduce(Verbs& verbs, const Behind& behind) {
  if (behind.position == 0)
    verbs.send(0);
  else if (behind.position < behind.world - 1)
    verbs.recvReduceSend(0);
  else
    verbs.recvReduceCopy(0);
}

template <class Verbs>
__device__ void run(const RingCall& call) {
  Verbs verbs(call);
  const Behind behind{call.position, call.world};
  const std::uint64_t passes = verbs.passes();
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    verbs.begin_pass(pass);
    switch (call.collective) {
      case Collective::all_reduce:
        all_reduce(verbs, behind);
        break;
      case Collective::reduce_scatter:
        reduce_scatter(verbs, behind);
        break;
      case Collective::all_gather:
        all_gather(verbs, behind);
        break;
      case Collective::broadcast:
        broadcast(verbs, behind);
        break;
      case Collective::reduce:
        reduce(verbs, behind);
        break;
      default:  // no ring: KernelEngine::serves()
        break;
    }
  }
  verbs.finish();
}

template <class T>
__global__ void ring(const __grid_constant__ RingCall call) {
  run<Slots<T>>(call);
}
template <class T>
__global__ void packet_ring(const __grid_constant__ RingCall call) {
  run<Packets<T>>(call);
}

}  // namespace

void launch_ring(const RingCall& call, CUstream_st* stream) {
  const auto start = [&]<class T>(TypeTag<T>) {
    launch(ring<T>, grid_of(call), block_of(call), 0, stream, call);
  };
  if (call.other_sign)
    with_other_sign(call.dtype, start);
  else
    with_type(call.dtype, start);
}

void launch_packet_ring(const RingCall& call, CUstream_st* stream) {
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    launch(packet_ring<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

}  // namespace ringsmith::comm::cuda_ipc
