// Folds many elements into one by a tree of fixed shape. Used by most sums and maxima (rows.cuh and
// log_sum.cuh are for kernels that need a row several times).
//
// A fold has outputs, and each output has terms. The Nest `kept` numbers the outputs by the
// dimensions that remain. Its operands are the outputs and, last, the input. The Nest `folded`
// numbers the terms by the reduced dimensions.
//
//   rows      terms are adjacent: a warp or a block per output, lanes along the terms
//   columns   outputs are adjacent: a lane per output, eight rows of lanes along the terms
//
// In both cases the terms are cut into chunks of fixed length. A warp or block folds a chunk with
// four accumulators per thread and a tree over the threads, and writes a partial result. Another
// pass folds the partial results. (Rows of more than 16,384^2 terms and columns of more than 256^2
// need three passes.) There are no atomics, and the tree depends only on the input's shape, strides
// and alignment, not on the device or the order of blocks. A float sum of a million terms has the
// error of a few dozen additions.
#pragma once

#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/scratch.hpp"
#include "kernels/cuda/strided.cuh"
#include "kernels/cuda/tree.cuh"

namespace ringsmith::kernels::cuda {

constexpr std::int64_t kRowChunk = 16384;   // terms per chunk: 64 per thread of a block
constexpr std::int64_t kColumnChunk = 256;  // terms per chunk of each of 32 outputs: 32 per thread
constexpr int kChains = 4;                  // accumulators per thread

// A Fold defines the terms and how two of them combine:
//   using Value;                     type of the terms and of the result, trivial
//   Value none() const;              the neutral element
//   Value term(offset, number);      of the input element at this offset, term number `number`
//   Value combine(a, b);             commutes
//   static constexpr bool kPacks;    true if pack(offset) returns Pack<Value, kChains>
//   void finish(offsets, value);     writes an output; offsets are the kept operands' positions
// All functions run on the device.

template <class Fold>
struct Chains {
  using Value = typename Fold::Value;
  Value at[kChains];
  __device__ explicit Chains(const Fold& fold) {
    for (Value& v : at) v = fold.none();
  }
  __device__ Value folded(const Fold& fold) const {
    return fold.combine(fold.combine(at[0], at[1]), fold.combine(at[2], at[3]));
  }
};

// For the output whose input starts at `base`: folds every lanes-th term in begin .. end - 1,
// starting with term begin + lane.
template <class Fold>
__device__ auto fold_strided(const Fold& fold, const Nest<1>& folded, std::int64_t base,
                             std::int64_t begin, std::int64_t end, int lane, int lanes) {
  const auto term = [&](std::int64_t r) {
    const std::int64_t at = folded.dims == 1 ? r * folded.strides[0][0] : offsets_of(folded, r)[0];
    return fold.term(base + at, r);
  };
  Chains<Fold> chains(fold);
  std::int64_t r = begin + lane;
  for (; r + (kChains - 1) * lanes < end; r += kChains * lanes) {
    typename Fold::Value loaded[kChains];
#pragma unroll
    for (int u = 0; u < kChains; ++u) loaded[u] = term(r + u * lanes);
#pragma unroll
    for (int u = 0; u < kChains; ++u) chains.at[u] = fold.combine(chains.at[u], loaded[u]);
  }
  for (; r < end; r += lanes) chains.at[0] = fold.combine(chains.at[0], term(r));
  return chains.folded(fold);
}

// fold_strided() for contiguous terms, which are read in packs, four packs at a time.
template <class Fold>
__device__ auto fold_packs(const Fold& fold, std::int64_t base, std::int64_t begin,
                           std::int64_t end, int lane, int lanes) {
  constexpr int kUnroll = 4;
  using Packed = Pack<typename Fold::Value, kChains>;
  Chains<Fold> chains(fold);
  const auto add = [&](const Packed& pack) {
    for (int c = 0; c < kChains; ++c) chains.at[c] = fold.combine(chains.at[c], pack.at[c]);
  };
  const std::int64_t last = end / kChains;
  std::int64_t p = begin / kChains + lane;
  for (; p + (kUnroll - 1) * lanes < last; p += kUnroll * lanes) {
    Packed loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = fold.pack(base + (p + u * lanes) * kChains);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) add(loaded[u]);
  }
  for (; p < last; p += lanes) add(fold.pack(base + p * kChains));
  for (std::int64_t r = last * kChains + lane; r < end; r += lanes)
    chains.at[0] = fold.combine(chains.at[0], fold.term(base + r, r));
  return chains.folded(fold);
}

// Cuts the terms of each output into `chunks` of `chunk` terms. The results of several chunks are
// written to `partials`.
template <class Fold, int N>
struct Pass {
  Fold fold;
  Nest<N> kept;
  Nest<1> folded;
  std::int64_t outputs, terms, chunk, chunks;
  bool packs;
  typename Fold::Value* partials;

  __device__ std::int64_t end(std::int64_t begin) const {
    return begin + chunk < terms ? begin + chunk : terms;
  }
  __device__ void store(const Offsets<N>& at, std::int64_t place,
                        const typename Fold::Value& value) const {
    if (partials != nullptr)
      partials[place] = value;
    else
      fold.finish(at, value);
  }
};

// The partial results of an output are contiguous.
template <int kTeam, class Fold, int N>
__global__ void fold_rows(Pass<Fold, N> pass) {
  constexpr int kTeams = kThreads / kTeam;
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  const std::int64_t stride = std::int64_t{gridDim.x} * kTeams;
  for (std::int64_t job = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam;
       job < pass.outputs * pass.chunks; job += stride) {
    std::int64_t output = job;
    const std::int64_t begin = take_digit(output, pass.chunks) * pass.chunk;
    const Offsets<N> at = offsets_of(pass.kept, output);
    const std::int64_t base = at[N - 1], end = pass.end(begin);
    typename Fold::Value value;
    if constexpr (Fold::kPacks)
      value = pass.packs ? fold_packs(pass.fold, base, begin, end, lane, kTeam)
                         : fold_strided(pass.fold, pass.folded, base, begin, end, lane, kTeam);
    else
      value = fold_strided(pass.fold, pass.folded, base, begin, end, lane, kTeam);
    value = team_reduce<kTeam>(
        value, [&](const auto& a, const auto& b) { return pass.fold.combine(a, b); });
    if (lane == 0) pass.store(at, job, value);
  }
}

constexpr int kColumnLanes = 32, kColumnRows = 8;

// The partial results of neighbouring outputs are contiguous.
template <class Fold, int N>
__global__ void fold_columns(Pass<Fold, N> pass) {
  __shared__ typename Fold::Value part[kColumnRows][kColumnLanes];
  const int lane = static_cast<int>(threadIdx.x), row = static_cast<int>(threadIdx.y);
  const std::int64_t tiles = ceil_div(pass.outputs, kColumnLanes);
  for (std::int64_t job = blockIdx.x; job < tiles * pass.chunks; job += gridDim.x) {
    std::int64_t chunk = job;
    const std::int64_t output = take_digit(chunk, tiles) * kColumnLanes + lane;
    const std::int64_t begin = chunk * pass.chunk;
    Offsets<N> at{};
    if (output < pass.outputs) {
      at = offsets_of(pass.kept, output);
      part[row][lane] =
          fold_strided(pass.fold, pass.folded, at[N - 1], begin, pass.end(begin), row, kColumnRows);
    }
    __syncthreads();
    if (row == 0 && output < pass.outputs) {
      auto value = part[0][lane];
      for (int r = 1; r < kColumnRows; ++r) value = pass.fold.combine(value, part[r][lane]);
      pass.store(at, chunk * pass.outputs + output, value);
    }
    __syncthreads();  // part has been read
  }
}

template <class Fold, int N>
void run_pass(const Pass<Fold, N>& pass, bool columns) {
  const std::int64_t jobs = pass.outputs * pass.chunks;
  if (columns)
    launch(fold_columns<Fold, N>, grid_for(ceil_div(pass.outputs, kColumnLanes) * pass.chunks, 1),
           dim3(kColumnLanes, kColumnRows), 0, stream(), pass);
  else if (pass.chunk <= 1024)
    launch_over(fold_rows<kWarp, Fold, N>, jobs, kThreads / kWarp, pass);
  else
    launch_over(fold_rows<kThreads, Fold, N>, jobs, 1, pass);
}

// Folds the partial results of another fold.
template <class Fold>
struct Again : Fold {
  const typename Fold::Value* partials;
  static constexpr bool kPacks = false;
  __device__ typename Fold::Value term(std::int64_t at, std::int64_t) const { return partials[at]; }
};
template <class Fold>
Again<Fold> again(const Fold& fold, const typename Fold::Value* partials) {
  return {fold, partials};
}
template <class Fold>
Again<Fold> again(const Again<Fold>& fold, const typename Fold::Value* partials) {
  return {static_cast<const Fold&>(fold), partials};
}

// The last operand of `kept` is the input. If `packs`, pack() may be used.
template <int N, class Fold>
void fold_nest(const Fold& fold, const Nest<N>& kept, const Nest<1>& folded, bool packs) {
  const std::int64_t outputs = numel(kept), terms = numel(folded);
  if (outputs == 0) return;
  const bool columns =
      !packs && (terms < kWarp || (kept.inner(N - 1) == 1 && folded.inner(0) != 1));
  const std::int64_t most = columns ? kColumnChunk : kRowChunk;
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(terms, most));
  const std::int64_t chunk = chunks == 1 ? terms : most;
  Pass<Fold, N> pass{fold, kept, folded, outputs, terms, chunk, chunks, packs, nullptr};
  if (chunks == 1) return run_pass(pass, columns);

  const Scratch<typename Fold::Value> partials(outputs * chunks);
  pass.partials = partials.data();
  run_pass(pass, columns);
  // For rows, the partial results of output k are at k * chunks, k * chunks + 1, and so on; for
  // columns, at k, k + outputs, and so on.
  Nest<N> left = kept;
  std::int64_t linear = columns ? 1 : chunks;
  for (auto d = static_cast<std::size_t>(kept.dims); d-- > 0; linear *= kept.sizes[d])
    left.strides[d][N - 1] = linear;
  const auto rest = one_run<1>(chunks, {columns ? outputs : 1});
  fold_nest(again(fold, partials.data()), left, rest, false);
}

// ---- sums as folds ----

template <class T>
struct Sums {
  using Value = T;
  __device__ T none() const { return 0; }
  __device__ T combine(T a, T b) const { return a + b; }
};

// out[at] = (or, if `add`, +=) the sum of elements of x. Elements of 16 bits are widened when they
// are loaded, partial results are floats, and the result is rounded once to Out.
template <class T, class Out = T>
struct SumInto : Sums<Wide<T>> {
  static constexpr bool kPacks = true;
  using Value = Wide<T>;
  const T* x;
  Out* out;
  bool add;
  __device__ Value term(std::int64_t at, std::int64_t) const { return widened(x[at]); }
  __device__ Pack<Value, kChains> pack(std::int64_t at) const {
    return widened(load_pack<kChains>(x + at, 0));
  }
  template <class At>
  __device__ void finish(const At& at, Value value) const {
    Out& to = out[at[0]];
    to = static_cast<Out>(add ? widened(to) + value : value);
  }
};

// True if terms with the layout `folded`, which start at the offsets of operand N - 1 of `kept`,
// can be read in packs of kChains and are enough for a warp.
template <int N, class T>
bool folds_in_packs(const T* x, const Nest<N>& kept, const Nest<1>& folded) {
  if (folded.dims != 1 || folded.inner(0) != 1 || !aligned_for(x, kChains)) return false;
  if (folded.inner_size() < kWarp) return false;  // not worth a warp
  for (std::size_t d = 0; d < static_cast<std::size_t>(kept.dims); ++d)
    if (kept.sizes[d] != 1 && kept.strides[d][N - 1] % kChains != 0) return false;
  return true;
}

// A fold of contiguous terms 0 to n - 1 into one output.
template <class Fold>
void fold_flat(const Fold& fold, std::int64_t n, bool packs) {
  fold_nest(fold, one_run<2>(1, {}), one_run<1>(n, {1}), packs && n >= kWarp);
}

// Folds each channel of contiguous images (n, channels, pixels). finish() gets the channel as the
// offset of operand 0.
template <class Fold>
void fold_channels(const Fold& fold, std::int64_t n, std::int64_t channels, std::int64_t pixels) {
  Layout rest;
  rest.dims = 2;
  rest.sizes = {n, pixels};
  rest.strides = {channels * pixels, 1};
  fold_nest(fold, one_run<2>(channels, {1, pixels}), nest_of<1>({&rest}), false);
}

}  // namespace ringsmith::kernels::cuda
