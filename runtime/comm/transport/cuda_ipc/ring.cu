// Engine B: one kernel per collective, a ring of ranks that pass chunks to their next.
//
// Position p of the ring, `behind(j)` the chunk of the position j places back. All-reduce among 4,
// as position 0 sees it, step by step; every rank does the same, one chunk further on:
//
//     step  verb                 chunk   what travels
//     0     send                 3       x0                      -> 1
//     1     recvReduceSend       2       x3 (+) x0               -> 1
//     2     recvReduceSend       1       x2 (+) x3 (+) x0        -> 1
//     3     recvReduceCopySend   0       x1 + x2 + x3 + x0: done -> 1, and kept
//     4     recvCopySend         3       the sum of chunk 3      -> 1, and kept
//     5     recvCopySend         2       the sum of chunk 2      -> 1, and kept
//     6     recv                 1       the sum of chunk 1, kept
//
// Each element's sum is formed once, along one path, and then only copied: all ranks have the same
// bits, those of ring_all_reduce (runtime/comm/schedule/ring.hpp) on every other executor.
//
// The loops below know nothing of memory or order; that is the verbs' business: slots.cuh for large
// messages, packets.cuh for small ones.
#include "runtime/comm/transport/cuda_ipc/launch.cuh"
#include "runtime/comm/transport/cuda_ipc/packets.cuh"
#include "runtime/comm/transport/cuda_ipc/slots.cuh"

namespace ringsmith::comm::cuda_ipc {

namespace {

// Chunks behind a position, counted back around the ring.
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

template <class Verbs>
__device__ void run(const RingCall& call) {
  Verbs verbs(call);
  const Behind behind{call.position, call.world};
  const std::uint64_t passes = verbs.passes();
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    verbs.begin_pass(pass);
    switch (call.op) {
      case RingOp::all_reduce:
        all_reduce(verbs, behind);
        break;
      case RingOp::reduce_scatter:
        reduce_scatter(verbs, behind);
        break;
      case RingOp::all_gather:
        all_gather(verbs, behind);
        break;
      case RingOp::broadcast:
        broadcast(verbs, behind);
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
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    launch(ring<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

void launch_packet_ring(const RingCall& call, CUstream_st* stream) {
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    launch(packet_ring<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

}  // namespace ringsmith::comm::cuda_ipc
