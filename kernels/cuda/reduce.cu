// Reduces several arrays to one and writes it to several places, in one pass, 16 bytes at a time if
// every pointer is aligned.
#include <algorithm>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce_ops.cuh"
#include "kernels/reduce.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr std::size_t kMostDestinations = 64;  // per launch

struct Arguments {
  Reduction op;
  double scale;
  std::uint64_t scaled;  // bit s: source s is multiplied by scale
  int sources, destinations;
  std::int64_t count;  // elements
  const std::byte* from[kMaxReduceSources];
  std::byte* to[kMostDestinations];
};

// Reduces elements [begin, begin + N * packs), spread over the grid.
template <Reduction op, class T, int N>
__device__ void reduce_packs(const Arguments& a, std::int64_t begin, std::int64_t packs) {
  for (std::int64_t p = first_item(); p < packs; p += item_stride()) {
    const std::size_t at = static_cast<std::size_t>(begin + p * N) * sizeof(T);
    Pack<T, N> result{};
    for (int s = 0; s < a.sources; ++s) {
      Pack<T, N> x = load_pack_at<T, N>(a.from[s] + at);
      const bool scale = (a.scaled >> s & 1) != 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (scale) x.at[i] = scaled(x.at[i], a.scale);
        result.at[i] = s == 0 ? x.at[i] : combine<op>(result.at[i], x.at[i]);
      }
    }
    for (int d = 0; d < a.destinations; ++d) store_pack_at<T, N>(a.to[d] + at, result);
  }
}

template <class T>
__global__ void reduce_kernel(const __grid_constant__ Arguments a, bool by_packs) {
  constexpr int N = kPack<T>;
  visit_reduction(a.op, [&](auto op) {
    const std::int64_t packs = by_packs ? a.count / N : 0;
    reduce_packs<decltype(op)::value, T, N>(a, 0, packs);
    reduce_packs<decltype(op)::value, T, 1>(a, packs * N, a.count - packs * N);
  });
}

bool all_aligned(const Arguments& a) {
  const auto aligned_16 = [](const std::byte* p) { return aligned_for(p, 16); };
  return std::all_of(a.from, a.from + a.sources, aligned_16) &&
         std::all_of(a.to, a.to + a.destinations, aligned_16);
}

}  // namespace

void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> outputs, Elements count, double scale) {
  check_reduce(dtype, sources, scale);
  if (count.value == 0 || outputs.empty()) return;
  Arguments a{};
  a.op = op;
  a.scale = scale;
  a.sources = static_cast<int>(sources.size());
  a.destinations = static_cast<int>(std::min(outputs.size(), kMostDestinations));
  a.count = static_cast<std::int64_t>(count.value);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    a.from[s] = sources[s].data;
    a.scaled |= std::uint64_t{sources[s].scaled} << s;
  }
  std::copy_n(outputs.begin(), a.destinations, a.to);
  if (dtype == DType::boolean) {
    if (sources.size() > 1)
      throw UsageError("bool values cannot be reduced: use u8 with min (and) or max (or)");
    dtype = DType::u8;  // one source: a copy
  }
  visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) {
      const bool by_packs = all_aligned(a);
      const std::int64_t work = by_packs ? ceil_div(a.count, kPack<T>) : a.count;
      launch_over(reduce_kernel<T>, work, kThreads, a, by_packs);
    }
  });
  for (std::size_t d = kMostDestinations; d < outputs.size(); ++d)
    cuda_check(cudaMemcpyAsync(outputs[d], outputs[0], count.value * size_of(dtype),
                               cudaMemcpyDefault, stream()));
}

}  // namespace ringsmith::kernels::cuda
