// Copy, convert and fill.
//
//   1  strided    one element per thread and iteration, for any strides and any two dtypes
//   2  packs      for contiguous runs on both sides: 16 bytes or, with conversion, four elements at
//                 a time
//   3  tiles      one dtype, if the runs of one side are the columns of the other: 32 x 32 elements
//                 go through shared memory, so that both reads and writes are contiguous. Rows
//                 are padded by one element, because a column would otherwise be in a single bank
//
//   4  a table    round_all: one launch for many tensors (table.cuh), eight elements at a time
//
// Contiguous copies of one dtype use cudaMemcpyAsync, and contiguous zeros cudaMemsetAsync.
#include <cstring>

#include "kernels/copy.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/strided.cuh"
#include "kernels/cuda/table.cuh"

namespace ringsmith::kernels::cuda {

namespace {

// One instance serves all types of the same size.
template <std::size_t kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using type = std::uint64_t;
};

// Copies kWidth elements of a run at a time, and converts them if D and S differ.
template <int kWidth, class D, class S>
__global__ void copy_runs(std::int64_t n, Nest<2> nest, D* out, const S* in) {
  for (std::int64_t i = first_item(); i < n; i += item_stride()) {
    const Offsets<2> at = offsets_of(nest, i);
    const Pack<S, kWidth> from = load_pack<kWidth>(in + at[1], 0);
    Pack<Wide<D>, kWidth> to;  // floats are rounded to f16 or bf16 in pairs
    for (int k = 0; k < kWidth; ++k) to.at[k] = convert<Wide<D>>(from.at[k]);
    store_pack(out + at[0], 0, narrowed<D>(to));
  }
}

template <class D, class S>
void copy_nest(Nest<2> nest, D* out, const S* in) {
  constexpr int kWidth = std::is_same_v<D, S> ? kPack<D> : 4;
  const std::int64_t n = numel(nest);
  Nest<2> packs = nest;
  if (nest.inner(1) == 1 && aligned_for(out, kWidth) && aligned_for(in, kWidth) &&
      in_packs(packs, kWidth))
    launch_over(copy_runs<kWidth, D, S>, n / kWidth, kThreads, n / kWidth, packs, out, in);
  else
    launch_over(copy_runs<1, D, S>, n, kThreads, n, nest, out, in);
}

constexpr int kTile = 32, kTileRows = 8;

// `nest` lacks the two dimensions of the tile, in which out[row][column] = in[column][row]. `out`
// is contiguous in the column index, `in` in the row index.
template <class Word>
__global__ void copy_tiles(std::int64_t batches, Nest<2> nest, std::int64_t rows,
                           std::int64_t columns, std::int64_t out_stride, std::int64_t in_stride,
                           Word* out, const Word* in) {
  __shared__ Word tile[kTile][kTile + 1];
  const std::int64_t across = ceil_div(columns, kTile), down = ceil_div(rows, kTile);
  for (std::int64_t job = blockIdx.x; job < batches * across * down; job += gridDim.x) {
    std::int64_t rest = job;
    const std::int64_t column = take_digit(rest, across) * kTile;
    const std::int64_t row = take_digit(rest, down) * kTile;
    const Offsets<2> at = offsets_of(nest, rest);
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    for (int k = y; k < kTile; k += kTileRows)
      if (column + k < columns && row + x < rows)
        tile[k][x] = in[at[1] + (column + k) * in_stride + row + x];
    __syncthreads();
    for (int k = y; k < kTile; k += kTileRows)
      if (row + k < rows && column + x < columns)
        out[at[0] + (row + k) * out_stride + column + x] = tile[x][k];
    __syncthreads();
  }
}

// Uses version 3 if `out` is contiguous in its last dimension and `in` in another one, and both
// dimensions have at least 8 elements. Otherwise returns false.
template <class Word>
bool copy_as_tiles(const Nest<2>& nest, Word* out, const Word* in) {
  const std::size_t last = nest.last();
  if (nest.inner(0) != 1 || nest.inner(1) == 1 || nest.inner_size() < kTileRows) return false;
  std::size_t d = 0;
  while (d < last && !(nest.strides[d][1] == 1 && nest.sizes[d] >= kTileRows)) ++d;
  if (d == last) return false;
  Nest<2> others;
  for (std::size_t k = 0; k < last; ++k)
    if (k != d) {
      others.sizes[static_cast<std::size_t>(others.dims)] = nest.sizes[k];
      others.strides[static_cast<std::size_t>(others.dims++)] = nest.strides[k];
    }
  if (others.dims == 0) others.sizes[static_cast<std::size_t>(others.dims++)] = 1;
  const std::int64_t batches = numel(others), rows = nest.sizes[d], columns = nest.inner_size();
  launch(copy_tiles<Word>, grid_for(batches * ceil_div(rows, kTile) * ceil_div(columns, kTile), 1),
         dim3(kTile, kTileRows), 0, stream(), batches, others, rows, columns, nest.strides[d][0],
         nest.inner(1), out, in);
  return true;
}

template <class Word>
void move(const Nest<2>& nest, Word* out, const Word* in) {
  if (is_contiguous(nest)) {
    if (out != in)
      cuda_check(cudaMemcpyAsync(out, in, static_cast<std::size_t>(numel(nest)) * sizeof(Word),
                                 cudaMemcpyDeviceToDevice, stream()));
  } else if (!copy_as_tiles(nest, out, in)) {
    copy_nest(nest, out, in);
  }
}

template <class H>
struct RoundedRow {
  const float* from;
  H* to;
  bool packs;
};
constexpr int kRoundTurns = 4;  // packs of H per thread in a chunk
template <class H>
using RoundTable = TensorTable<RoundedRow<H>, 112, std::int64_t{kRoundTurns} * kThreads * kPack<H>>;

template <class H>
__global__ void round_table(const __grid_constant__ RoundTable<H> table) {
  constexpr int N = kPack<H>;
  table.each_chunk([](const RoundedRow<H>& row, std::int64_t begin, std::int64_t n) {
    const float* const from = row.from + begin;
    H* const to = row.to + begin;
    const std::int64_t packs = row.packs ? n / N : 0;
    for (std::int64_t i = threadIdx.x; i < packs; i += kThreads) {
      Pack<float, N> wide;
      for (int half = 0; half < 2; ++half) {
        const Pack<float, N / 2> loaded = load_pack<N / 2>(from, 2 * i + half);
        for (int k = 0; k < N / 2; ++k) wide.at[half * (N / 2) + k] = loaded.at[k];
      }
      store_pack(to, i, narrowed<H>(wide));
    }
    for (std::int64_t i = packs * N + threadIdx.x; i < n; i += kThreads) to[i] = H(from[i]);
  });
}

template <class T>
bool is_zero_bytes(const T& value) {
  const T zero{};
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): compares bytes, which differ for -0.0
  return std::memcmp(&value, &zero, sizeof(T)) == 0;
}

}  // namespace

template <class D, class S>
void copy(View<D> out, View<const S> in) {
  const Nest<2> nest = nest_of<2>({&out.layout, &in.layout});
  if (numel(nest) == 0) return;
  if constexpr (std::is_same_v<D, S>) {
    using Word = typename WordOf<sizeof(D)>::type;
    move(nest, reinterpret_cast<Word*>(out.data), reinterpret_cast<const Word*>(in.data));
  } else {
    copy_nest(nest, out.data, in.data);
  }
}

template <class T>
void fill(View<T> out, T value) {
  const Nest<1> nest = nest_of<1>({&out.layout});
  const std::int64_t n = numel(nest);
  T* const to = out.data;
  if (is_contiguous(nest) && is_zero_bytes(value)) {
    if (n > 0)
      cuda_check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(n) * sizeof(T), stream()));
    return;
  }
  for_each(n, [=] __device__(std::int64_t i) { to[offsets_of(nest, i)[0]] = value; });
}

template <class H>
void round_all(std::span<const RoundedTensor<H>> tensors) {
  static_assert(sizeof(RoundTable<H>) <= kArgumentBytes);
  for_each_table<RoundTable<H>>(
      tensors,
      [](const RoundedTensor<H>& t) {
        const bool packs = aligned(t.to.data()) && aligned(t.from.data());
        return RoundedRow<H>{t.from.data(), t.to.data(), packs};
      },
      [](const RoundedTensor<H>& t) { return std::ssize(t.to); },
      [](const RoundTable<H>& table) { launch_over(round_table<H>, table.chunks, 1, table); });
}

RINGSMITH_COPY_AND_FILL
RINGSMITH_HALVES(round_all)

}  // namespace ringsmith::kernels::cuda
