// One-shot all-reduce: every rank sends all it has to everybody, by packets, and adds up for
// itself.
//
//     rank 0  line i --> ranks 1, 2, 3     own, and line i from 1, 2, 3 --> ((x0 + x1) + x2) + x3
//     rank 1  line i --> ranks 0, 2, 3     ...
//
// One hop, where the ring takes 2 (world - 1): the way for messages so small that nothing but the
// number of hops counts. The sum is in rank order on every rank, as in the window of the host's
// transport (executor/window.hpp), and bit for bit the same.
//
// When packets may be overwritten: packets.cuh.
#include "runtime/comm/device/launch.cuh"
#include "runtime/comm/device/packets.cuh"

namespace ringsmith::comm::cuda_ipc {

namespace {

// Where rank `from` puts line i into a station.
__device__ std::byte* place_of(const DirectCall& call, std::byte* station, int from,
                               std::uint64_t i) {
  const std::uint64_t line = static_cast<std::uint64_t>(from) * lines_of(kMostOneShotBytes) + i;
  return station + packets_at(call.packet_flag, call.world) + line * kLineBytes;
}

template <class T>
__global__ void one_shot(const __grid_constant__ DirectCall call) {
  constexpr std::uint64_t kLanes = kLineData / sizeof(T);
  const Waiter waiter{call.patience, reinterpret_cast<Station*>(call.station[call.rank]),
                      call.rank};
  const Arithmetic& a = call.arithmetic;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i * kLanes < call.chunk.count; i += threads) {
    const std::uint64_t n = min(kLanes, call.chunk.count - i * kLanes);
    Line<T> own = load_line<T>(call.input[call.rank] + i * kLineData, n);
    kernels::cuda::visit_reduction(a.reduction, [&](auto reduction) {
      constexpr kernels::Reduction op = decltype(reduction)::value;
      const Arithmetic unscaled{op, false, 1.0};
      join<op>(own.data, static_cast<decltype(&own.data)>(nullptr), a);
      for (int k = 1; k < call.world; ++k) {
        const int peer = (call.rank + k) % call.world;
        put_line(place_of(call, call.station[peer], call.rank, i), own, call.packet_flag);
      }
      Line<T> sum, next;
      for (int r = 0; r < call.world; ++r) {
        if (r == call.rank)
          next = own;
        else if (!take_line(waiter, place_of(call, call.station[call.rank], r, i), call.packet_flag,
                            r, 0, next))
          return;
        if (r == 0)
          sum = next;
        else
          join<op>(sum.data, &next.data, unscaled);
      }
      store_line(call.output[call.rank] + i * kLineData, n, sum);
    });
  }
}

}  // namespace

void launch_one_shot(const DirectCall& call, CUstream_st* stream) {
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    launch(one_shot<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

}  // namespace ringsmith::comm::cuda_ipc
