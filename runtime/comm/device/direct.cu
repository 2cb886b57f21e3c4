// Direct all-reduce: every rank exchanges data with every other rank, in one hop (one-shot) or two
// hops (two-shot). The ring takes 2 (world - 1) hops.
//
// One-shot: every rank sends its input to all others, by packets, and computes the sum itself.
//
//     rank 0  line i --> ranks 1, 2, 3     own, and line i from 1, 2, 3 --> ((x0 + x1) + x2) + x3
//     rank 1  line i --> ranks 0, 2, 3     ...
//
// One-shot is for messages so small that only the number of hops matters. Every rank sums in rank
// order, so the result has the same bits as staged messages on the host (executor/staging.cpp).
//
// Two-shot: every rank sums its own chunk directly from all inputs, and stores it directly in all
// outputs.
//
//     meet                       all ranks' kernels have begun: their inputs are ready
//     rank r: out[r] of all  =  ((in[r] of r + in[r] of r + 1) + in[r] of r + 2) + ...
//     meet                       all stores and loads are complete: the kernel may end
//
// Each element is loaded once from each rank and stored once to each rank. In place works, too,
// because only rank r accesses chunk r, and it loads an element from all ranks before it stores it.
// The sum has the same order as the two-shot schedule (schedule/direct.hpp) on any executor.
#include "runtime/comm/device/kernel.cuh"
#include "runtime/comm/device/packets.cuh"

namespace ringsmith::comm::cuda_ipc {

namespace {

// Returns the address of line i from rank `from` in a station.
__device__ std::byte* place_of(const DirectCall& call, std::byte* station, int from,
                               std::uint64_t i) {
  const std::uint64_t line = static_cast<std::uint64_t>(from) * lines_of(kMostOneShotBytes) + i;
  return station + call.packets + line * kLineBytes;
}

// Returns the rank k places after `rank`, for k <= world, without a division.
__device__ int after(int rank, int k, int world) {
  return rank + k < world ? rank + k : rank + k - world;
}

template <class T>
__global__ void __launch_bounds__(kMostThreads, 1)
    one_shot(const __grid_constant__ DirectCall call) {
  constexpr std::uint64_t kLanes = kLineData / sizeof(T);
  const Waiter waiter{call.timeout, reinterpret_cast<Station*>(call.station[call.rank]), call.rank};
  const Arithmetic& a = call.arithmetic;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i * kLanes < call.chunk.count; i += threads) {
    const std::uint64_t n = min(kLanes, call.chunk.count - i * kLanes);
    Line<T> own = load_line<T>(call.input[call.rank] + i * kLineData, n);
    kernels::cuda::visit_reduction(a.reduction, [&](auto reduction) {
      constexpr kernels::Reduction op = decltype(reduction)::value;
      scale_pack(own.data, a);
      for (int k = 1; k < call.world; ++k) {
        const int peer = after(call.rank, k, call.world);
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
          combine_pack<op>(sum.data, next.data);
      }
      store_line(call.output[call.rank] + i * kLineData, n, sum);
    });
  }
}

// A meeting of the blocks with the same number on all ranks. Their accesses before it are visible
// to all of them after it. After a barrier of the block, one thread per peer stores the number of
// the meeting into the peer's station (release) and polls for the peer's number in its own station
// (acquire). A second barrier follows. The first meeting of a call waits until all inputs are
// ready, the second until the blocks have stored their shares. Together, the blocks of a rank wait
// for all blocks of all ranks.
__device__ bool meet(const DirectCall& call, std::uint64_t meeting, std::int64_t step) {
  const auto release = order_of(End::arrival_release);
  const auto acquire = order_of(End::arrival_acquire);
  const auto station_of = [&](int r) { return reinterpret_cast<Station*>(call.station[r]); };
  Station& mine = *station_of(call.rank);
  const Waiter waiter{call.timeout, &mine, call.rank};
  __syncthreads();
  bool all_here = true;
  for (int peer = static_cast<int>(threadIdx.x); peer < call.world && all_here;
       peer += static_cast<int>(blockDim.x)) {
    SystemAtomic<std::uint64_t>(station_of(peer)->arrived[call.rank][blockIdx.x].value)
        .store(meeting, release);
    const SystemAtomic<std::uint64_t> theirs(mine.arrived[peer][blockIdx.x].value);
    all_here = wait_until(
        waiter, Awaited::arrival, peer, step, meeting,
        [&] { return theirs.load(acquire) >= meeting; },
        [&] { return theirs.load(cuda::memory_order_relaxed); });
  }
  return __syncthreads_and(all_here) != 0;
}

// Sums kPacks packs, `step` bytes apart, of which the first is at byte `at` of the work buffer. A
// load from a peer takes microseconds. Therefore a thread issues the loads of up to kPeers ranks,
// for each of its packs, before it uses the first.
template <kernels::Reduction op, class T, int kLanes, int kPeers, int kPacks>
__device__ void add_packs(const DirectCall& call, std::uint64_t at, std::uint64_t step) {
  using P = Pack<T, kLanes>;
  const int world = call.world;
  // A product with 1 changes no bit, and costs fewer registers than a branch.
  const double scale = call.arithmetic.scaled ? call.arithmetic.scale : 1.0;
  P sum[kPacks];
  for (int base = 0; base < world; base += kPeers) {
    P x[kPeers][kPacks];
#pragma unroll
    for (int k = 0; k < kPeers; ++k) {
      if (base + k >= world) continue;
      const std::byte* const input = call.input[after(call.rank, base + k, world)] + at;
#pragma unroll
      for (int u = 0; u < kPacks; ++u)
        x[k][u] = kernels::cuda::load_pack_at<T, kLanes>(input + static_cast<unsigned>(u) * step);
    }
#pragma unroll
    for (int k = 0; k < kPeers; ++k) {
      if (base + k >= world) continue;
#pragma unroll
      for (int u = 0; u < kPacks; ++u) {
#pragma unroll
        for (int i = 0; i < kLanes; ++i)
          x[k][u].at[i] = kernels::cuda::scaled(x[k][u].at[i], scale);
        if (k == 0 && base == 0)
          sum[u] = x[k][u];
        else
          combine_pack<op>(sum[u], x[k][u]);
      }
    }
  }
  for (int k = 0; k < world; ++k) {
    std::byte* const output = call.output[after(call.rank, k, world)] + at;
#pragma unroll
    for (int u = 0; u < kPacks; ++u)
      kernels::cuda::store_pack_at<T, kLanes>(output + static_cast<unsigned>(u) * step, sum[u]);
  }
}

// Sums elements [begin, end) of the work buffer, kLanes at a time. Addresses must be aligned to
// kLanes elements.
template <kernels::Reduction op, class T, int kLanes, int kPeers, int kPacks>
__device__ void add_up(const DirectCall& call, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t step = std::uint64_t{blockDim.x} * (kLanes * sizeof(T)),
                      last = end * sizeof(T);
  std::uint64_t at = (begin + threadIdx.x * std::uint64_t{kLanes}) * sizeof(T);
  if constexpr (kPacks > 1) {
    for (; at + (kPacks - 1) * step < last; at += kPacks * step)
      add_packs<op, T, kLanes, kPeers, kPacks>(call, at, step);
  }
  for (; at < last; at += step) add_packs<op, T, kLanes, kPeers, 1>(call, at, step);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads, 1) direct(const __grid_constant__ DirectCall call) {
  if (!meet(call, call.meeting, 0)) return;
  constexpr std::uint64_t kLanes = 16 / sizeof(T);
  const Range& chunk = call.chunk;
  const std::uint64_t begin = chunk.begin + min(chunk.count, call.share * blockIdx.x);
  const std::uint64_t end = min(begin + call.share, chunk.begin + chunk.count);
  bool by_16 = chunk.begin % kLanes == 0;
  for (int r = 0; r < call.world; ++r)
    by_16 = by_16 && kernels::cuda::aligned_for(call.input[r], 16) &&
            kernels::cuda::aligned_for(call.output[r], 16);
  kernels::cuda::visit_reduction(call.arithmetic.reduction, [&](auto reduction) {
    constexpr kernels::Reduction op = decltype(reduction)::value;
    const std::uint64_t middle = by_16 ? begin + (end - begin) / kLanes * kLanes : begin;
    constexpr int kWide = static_cast<int>(kLanes);
    constexpr int kMany = sizeof(T) == 1 ? 4 : 8;  // each byte of a pack needs its own register
    if constexpr (op == kernels::Reduction::sum && sizeof(T) > 1) {
      // With few ranks, a thread loads several packs of each, as many as the registers allow.
      constexpr int kMore = sizeof(T) == 2 ? 1 : 2;
      if (call.world <= 2)
        add_up<op, T, kWide, 2, 2 * kMore>(call, begin, middle);
      else if (call.world <= 4)
        add_up<op, T, kWide, 4, kMore>(call, begin, middle);
      else
        add_up<op, T, kWide, kMany, 1>(call, begin, middle);
    } else {
      add_up<op, T, kWide, kMany, 1>(call, begin, middle);
    }
    add_up<op, T, 1, 1, 1>(call, middle, end);
  });
  meet(call, call.meeting + 1, 1);
}

}  // namespace

void launch_one_shot(const DirectCall& asked, CUstream_st* stream) {
  DirectCall call = asked;
  call.packets = packets_at(call.packet_flag, call.world);
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    launch(one_shot<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

void launch_direct(const DirectCall& asked, CUstream_st* stream) {
  DirectCall call = asked;
  with_type(call.dtype, [&]<class T>(TypeTag<T>) {
    const auto blocks = static_cast<std::uint64_t>(call.blocks);
    call.share = round_up((call.chunk.count + blocks - 1) / blocks, 16 / sizeof(T));
    launch(direct<T>, grid_of(call), block_of(call), 0, stream, call);
  });
}

std::vector<const void*> direct_kernels() {
  std::vector<const void*> all;
  for_all_types([&]<class T>(TypeTag<T>) {
    all.push_back(reinterpret_cast<const void*>(one_shot<T>));
    all.push_back(reinterpret_cast<const void*>(direct<T>));
  });
  return all;
}

}  // namespace ringsmith::comm::cuda_ipc
