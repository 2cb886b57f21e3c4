// Gathers rows of a table by index, and adds gradients to them.
//
//   forward    one thread per pack of the result. An index outside the table gives a row of NaN,
//              and check_indices() reports the index later
//   backward   dweight[index[i]] += dy[i]. Floating-point atomics could add in a different order in
//              every run. Therefore the uses are sorted by row (a radix sort, which keeps the order
//              of equal rows) and added in pieces of the same length, by a thread per piece and
//              column:
//
//                index    2 0 2 1 2 2 0      sorted, row:use   0:1 0:6 | 1:3 2:0 | 2:2 2:4 | 2:5
//                piece    0                      1            2             3
//                         row 0 is whole         1 is whole   2 continues   2 ends
//                         -> table               -> table     -> head       -> head
//                                                2 begins
//                                                -> tail
//              then the thread of piece 1 adds tail and the following heads, and writes row 2
//
//              A piece has sqrt(n) uses (at least kLeastPiece), so a thread adds at most about
//              2 sqrt(n) numbers, however often one row is used. The order depends only on the
//              indices. With at most kLeastPiece uses in total, it is ascending i.
#include <bit>
#include <cmath>
#include <string>

#include "kernels/cuda/first_bad.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/scratch.hpp"
#include "kernels/cuda/strided.cuh"
#include "kernels/cuda/tree.cuh"
#include "kernels/embedding.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

void check_indices(const char* op, std::span<const std::int64_t> index, std::int64_t rows) {
  const std::int64_t* const at = index.data();
  check_later(
      std::ssize(index), [=] __device__(std::int64_t i) { return at[i] < 0 || at[i] >= rows; }, at,
      [op = std::string(op), rows](std::uint64_t position, std::int64_t value) {
        return op + ": index " + std::to_string(value) + " at position " +
               std::to_string(position) + " is outside [0, " + std::to_string(rows) + ")";
      });
}

namespace {

template <int kWidth, class T>
__global__ void gather(const T* weight, std::int64_t rows, std::int64_t row_packs,
                       const std::int64_t* index, std::int64_t packs, T* out) {
  for (std::int64_t p = first_item(); p < packs; p += item_stride()) {
    std::int64_t i = p;
    const std::int64_t within = take_digit(i, row_packs), row = index[i];
    Pack<T, kWidth> pack;
    if (row >= 0 && row < rows)
      pack = load_pack<kWidth>(weight, row * row_packs + within);
    else
      for (T& x : pack.at) x = static_cast<T>(NAN);
    store_pack(out, p, pack);
  }
}

// ---- uses, sorted by row ----

struct Use {
  unsigned row;       // or the number of rows, if the index is outside the table
  unsigned position;  // in index and dy
};

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kTile = kThreads;   // uses that a block sorts by one digit
static_assert(kTile == kDigits);  // a thread handles one use of a tile, and one digit

struct Pass {
  const Use* from;
  Use* to;
  std::int64_t n, tiles;
  int shift;
  // [digit][tile]: number of uses; after place_digits(), number of uses in earlier tiles
  unsigned* counts;
  unsigned* totals;  // [digit]: number of uses, by place_digits()

  [[nodiscard]] __device__ unsigned digit(const Use& use) const {
    return use.row >> shift & (kDigits - 1);
  }
};

__global__ void __launch_bounds__(kThreads) count_digits(Pass p) {
  __shared__ unsigned digits[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const std::int64_t first = tile * kTile;
    const int here = static_cast<int>(smaller(kTile, p.n - first));
    if (thread < here) digits[thread] = p.digit(p.from[first + thread]);
    __syncthreads();
    unsigned count = 0;
    for (int u = 0; u < here; ++u) count += digits[u] == static_cast<unsigned>(thread) ? 1 : 0;
    p.counts[thread * p.tiles + tile] = count;
    __syncthreads();  // the digits have been read
  }
}

// The sum of `value` over the warp's lanes before this one.
__device__ unsigned sum_before(unsigned value) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  unsigned sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const unsigned earlier = __shfl_up_sync(0xffffffffU, sum, distance);
    if (lane >= distance) sum += earlier;
  }
  return sum - value;
}

constexpr int kWarps = kThreads / kWarp;
constexpr int kTogether = 4;  // counts that a lane loads before it uses any of them

// A warp per digit. Counts of 128 tiles, or 32,768 uses, cost one latency of the memory.
__global__ void __launch_bounds__(kThreads) place_digits(Pass p) {
  const std::int64_t digit = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  unsigned* const counts = p.counts + digit * p.tiles;
  unsigned before = 0;
  for (std::int64_t first = 0; first < p.tiles; first += kWarp * kTogether) {
    const std::int64_t mine = first + lane * kTogether;
    unsigned places[kTogether], sum = 0;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      places[k] = sum;
      sum += mine + k < p.tiles ? counts[mine + k] : 0;
    }
    const unsigned place = before + sum_before(sum);
#pragma unroll
    for (int k = 0; k < kTogether; ++k)
      if (mine + k < p.tiles) counts[mine + k] = place + places[k];
    before = __shfl_sync(0xffffffffU, place + sum, kWarp - 1);
  }
  if (lane == 0) p.totals[digit] = before;
}

// The number of uses whose digit is smaller than the thread's number.
__device__ unsigned start_of_digit(const unsigned* totals) {
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  unsigned earlier = 0;  // in the digits of the warps before this one
  for (unsigned w = 0; w < warp; ++w) earlier += totals[w * kWarp + lane];
  return warp_reduce(earlier, Plus{}) + sum_before(totals[threadIdx.x]);
}

__global__ void __launch_bounds__(kThreads) move_uses(Pass p) {
  __shared__ unsigned digits[kTile], starts[kDigits];
  const int thread = static_cast<int>(threadIdx.x);
  starts[thread] = start_of_digit(p.totals);
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const std::int64_t i = tile * kTile + thread;
    Use use{};
    if (i < p.n) {
      use = p.from[i];
      digits[thread] = p.digit(use);
    }
    __syncthreads();
    if (i < p.n) {
      unsigned earlier = 0;  // uses with the same digit before this one in the tile
      for (int u = 0; u < thread; ++u) earlier += digits[u] == digits[thread] ? 1 : 0;
      const unsigned digit = digits[thread];
      p.to[starts[digit] + p.counts[digit * p.tiles + tile] + earlier] = use;
    }
    __syncthreads();
  }
}

// Sorts by row, then by position. Returns the half of `uses` (2 n elements) with the result.
const Use* sort_uses(const std::int64_t* index, std::int64_t n, std::int64_t rows, Use* uses) {
  for_each(n, [=] __device__(std::int64_t i) {
    const bool inside = index[i] >= 0 && index[i] < rows;
    uses[i] = {static_cast<unsigned>(inside ? index[i] : rows), static_cast<unsigned>(i)};
  });
  const std::int64_t tiles = ceil_div(n, kTile);
  const Scratch<unsigned> counts(kDigits * tiles + kDigits);
  Pass pass{uses, uses + n, n, tiles, 0, counts.data(), counts.data() + kDigits * tiles};
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows)));
  for (; pass.shift < bits; pass.shift += kDigitBits) {
    launch_over(count_digits, n, kTile, pass);
    launch(place_digits, kDigits / kWarps, kThreads, 0, stream(), pass);
    launch_over(move_uses, n, kTile, pass);
    Use* const sorted = pass.to;
    pass.to = const_cast<Use*>(pass.from);
    pass.from = sorted;
  }
  return pass.from;
}

// ---- sums of the sorted uses ----

constexpr std::int64_t kLeastPiece = 64;

template <class T>
struct Sums {
  const Use* uses;
  std::int64_t n, rows, dim, piece, pieces;
  const T* dy;
  T *head, *tail;  // [piece][column]
  T* dweight;

  [[nodiscard]] __device__ bool is_of(std::int64_t u, unsigned row) const {
    return u >= 0 && u < n && uses[u].row == row;
  }
};

template <class T>
__global__ void sum_pieces(Sums<T> s) {
  for (std::int64_t e = first_item(); e < s.pieces * s.dim; e += item_stride()) {
    std::int64_t piece = e;
    const std::int64_t column = take_digit(piece, s.dim);
    const std::int64_t begin = piece * s.piece, end = smaller(s.n, begin + s.piece);
    for (std::int64_t u = begin; u < end;) {
      const unsigned row = s.uses[u].row;
      if (row == s.rows) break;  // outside the table: these are last
      const bool begins = !s.is_of(u - 1, row);
      T* const to = s.dweight + row * s.dim + column;
      T sum = begins ? *to : T(0);
      for (; u < end && s.uses[u].row == row; ++u)
        sum += s.dy[std::int64_t{s.uses[u].position} * s.dim + column];
      const bool ends = u < end || !s.is_of(u, row);
      if (begins && ends)
        *to = sum;
      else
        (begins ? s.tail : s.head)[e] = sum;
    }
  }
}

// Completes rows that span pieces, in the thread of the first piece.
template <class T>
__global__ void join_pieces(Sums<T> s) {
  for (std::int64_t e = first_item(); e < (s.pieces - 1) * s.dim; e += item_stride()) {
    std::int64_t piece = e;
    const std::int64_t column = take_digit(piece, s.dim);
    const std::int64_t end = (piece + 1) * s.piece;
    const unsigned row = s.uses[end - 1].row;
    if (row == s.rows || !s.is_of(end, row)) continue;  // no row continues
    const std::int64_t begin = piece * s.piece;
    if (s.uses[begin].row == row && s.is_of(begin - 1, row)) continue;  // it began earlier
    T sum = s.tail[e];
    for (std::int64_t next = piece + 1; next < s.pieces; ++next) {
      if (!s.is_of(next * s.piece, row)) break;
      sum += s.head[next * s.dim + column];
    }
    s.dweight[row * s.dim + column] = sum;
  }
}

}  // namespace

template <class T>
void embedding(std::span<const T> weight, std::int64_t dim, std::span<const std::int64_t> index,
               std::span<T> out) {
  const std::int64_t n = std::ssize(index) * dim;
  if (n == 0) return;
  const std::int64_t rows = std::ssize(weight) / dim;
  constexpr int kWidth = kPack<T>;
  if (dim % kWidth == 0 && aligned(weight.data(), out.data()))
    launch_over(gather<kWidth, T>, n / kWidth, kThreads, weight.data(), rows, dim / kWidth,
                index.data(), n / kWidth, out.data());
  else
    launch_over(gather<1, T>, n, kThreads, weight.data(), rows, dim, index.data(), n, out.data());
}

template <class T>
void embedding_backward(std::span<const T> dy, std::int64_t dim,
                        std::span<const std::int64_t> indices, std::span<T> dweight) {
  const std::int64_t n = std::ssize(indices);
  if (n == 0 || dim == 0) return;
  const std::int64_t rows = std::ssize(dweight) / dim;
  constexpr std::int64_t kMost = 0xffffffff;
  require(n <= kMost && rows <= kMost, "embedding: more than 2^32 - 1 rows or indices");
  const Scratch<Use> uses(2 * n);
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  const std::int64_t piece = std::max(kLeastPiece, root), pieces = ceil_div(n, piece);
  const Scratch<T> partial(2 * pieces * dim);
  const Sums<T> sums{sort_uses(indices.data(), n, rows, uses.data()),
                     n,
                     rows,
                     dim,
                     piece,
                     pieces,
                     dy.data(),
                     partial.data(),
                     partial.data() + pieces * dim,
                     dweight.data()};
  launch_over(sum_pieces<T>, pieces * dim, kThreads, sums);
  if (pieces > 1) launch_over(join_pieces<T>, (pieces - 1) * dim, kThreads, sums);
}

RINGSMITH_FLOAT_AND_DOUBLE(embedding)
RINGSMITH_FLOAT_AND_DOUBLE(embedding_backward)

}  // namespace ringsmith::kernels::cuda
