// A matrix product built on three ideas, about as fast as OpenBLAS on one core (kernel_bench
// --family matmul measures both).
//
// 1. Registers. A tile of C, 6 rows by 4 vectors with AVX-512, stays in registers while k runs
//    (gemm_tile.hpp).
// 2. Caches. B is copied into panels as wide as the tile, in the order in which the tile reads
//    them. Panels usually have kDepth rows, so that one fits in L1. A is read in place, or copied
//    in the same way if it is stored transposed.
// 3. Orientation. C = A B or C^T = B^T A^T, whichever copies less. For a small batch times a large
//    transposed weight, the batch is copied and the weight is read once, in place.
//
// Every element of C is one chain of fused multiply-adds over ascending k that starts from 0, the
// old value of C or a bias. The bits are the same for every shape, blocking, orientation, number of
// threads and vector width, on any processor with fused multiply-adds.
//
// Paper: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
#include "kernels/cpu/gemm.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "kernels/cpu/fast/gemm_tile.hpp"
#include "kernels/cpu/fast/transpose.hpp"
#include "kernels/matmul.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kDepth = 128;      // with AVX-512, a panel of kDepth x kWidth is 32 KiB
constexpr std::int64_t kBlock = 1 << 16;  // floats of A or B processed at a time: 256 KiB

struct Range {
  std::int64_t begin, size;
};

// Copies rows k, columns j of b into rows of `padded` floats, with zeros beyond j.size.
void pack_panel(Matrix<const float> b, Range k, Range j, std::int64_t padded,
                float* __restrict out) {
  if (b.col_stride == 1) {
    for (std::int64_t r = 0; r < k.size; ++r) {
      const float* from = b.data + (k.begin + r) * b.row_stride + j.begin;
      float* to = out + r * padded;
      std::copy(from, from + j.size, to);
      std::fill(to + j.size, to + padded, 0.0F);
    }
    return;
  }
  transpose(&b(k.begin, j.begin), b.col_stride, j.size, k.size, out, padded);
  for (std::int64_t r = 0; r < k.size; ++r)
    std::fill(out + r * padded + j.size, out + (r + 1) * padded, 0.0F);
}

// Returns the size of a packed tile in floats. It includes one additional cache line, because tiles
// whose size is a multiple of a large power of two would compete for a few cache sets during
// packing.
std::int64_t tile_space(std::int64_t tile_rows, std::int64_t depth) {
  return tile_rows * depth + 16;
}

// Copies rows i, columns k of a in the order in which tiles read them: tile by tile, column by
// column. a is a transpose, so the elements of a column are adjacent in memory, and one pass over
// the columns suffices.
void pack_rows(Matrix<const float> a, Range i, Range k, std::int64_t tile_rows,
               float* __restrict out) {
  const std::int64_t tiles = i.size / tile_rows, rest = i.size % tile_rows;
  const std::int64_t space = tile_space(tile_rows, k.size);
  for (std::int64_t c = 0; c < k.size; ++c) {
    const float* from = &a(i.begin, k.begin + c);
    if (tile_rows == kRows)  // a copy of constant size is inlined
      for (std::int64_t t = 0; t < tiles; ++t)
        std::memcpy(out + t * space + c * kRows, from + t * kRows, kRows * sizeof(float));
    else
      for (std::int64_t t = 0; t < tiles; ++t)
        std::copy_n(from + t * tile_rows, tile_rows, out + t * space + c * tile_rows);
    std::copy_n(from + tiles * tile_rows, rest, out + tiles * space + c * rest);
  }
}

class Scratch {
 public:
  float* get(std::int64_t floats) {
    if (floats > size_) {
      memory_.reset(static_cast<float*>(
          ::operator new (static_cast<std::size_t>(floats) * sizeof(float), std::align_val_t{64})));
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

// copy_in() and copy_out() copy C to and from a buffer, for a partial vector or a transposed C.
void copy_in(Matrix<const float> from, float* tile, std::int64_t tile_row) {
  for (std::int64_t r = 0; r < from.rows; ++r)
    for (std::int64_t j = 0; j < from.cols; ++j) tile[r * tile_row + j] = from(r, j);
}
void copy_out(const float* tile, std::int64_t tile_row, Matrix<float> to) {
  if (to.row_stride == 1)  // transposed: r is contiguous in memory
    for (std::int64_t j = 0; j < to.cols; ++j)
      for (std::int64_t r = 0; r < to.rows; ++r) to(r, j) = tile[r * tile_row + j];
  else
    for (std::int64_t r = 0; r < to.rows; ++r)
      for (std::int64_t j = 0; j < to.cols; ++j) to(r, j) = tile[r * tile_row + j];
}

template <class T>
Matrix<T> part(Matrix<T> c, Range i, Range j) {
  return {&c(i.begin, j.begin), i.size, j.size, c.row_stride, c.col_stride};
}

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// One product on one thread. `start` is the initial value of C, with C's shape and any strides: C
// itself, or a bias that is the same in every row. If it has no data, C starts from zero.
class Product {
 public:
  Product(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, Matrix<const float> start)
      : a_(a), b_(b), c_(c), start_(start) {}

  void run() {
    // A transposed C is copied in and out in every pass over k, so it gets fewer, deeper passes.
    const std::int64_t narrow = kWidth / std::min(kWidth, round_up(c_.cols, kLanes));
    const std::int64_t most = kDepth * (c_.col_stride == 1 ? narrow : 8);
    for (Range k{0, 0}; k.begin < a_.cols; k.begin += k.size) {
      k.size = std::min(most, a_.cols - k.begin);
      const std::int64_t block = round_up(std::max<std::int64_t>(1, kBlock / k.size), kWidth);
      // If A is short and read in place, B is processed one panel at a time, so that the panel
      // stays in L1.
      const std::int64_t columns = !copies_a(k.size) && c_.rows <= block ? kWidth : block;
      for (std::int64_t j = 0; j < c_.cols; j += columns)
        for (std::int64_t i = 0; i < c_.rows; i += block)
          run_block({i, std::min(block, c_.rows - i)}, {j, std::min(columns, c_.cols - j)}, k);
    }
  }

  // Cost of the copies in this orientation; copying a contiguous float costs 1.
  [[nodiscard]] double price() const {
    const auto size = [](const auto& m) { return static_cast<double>(m.rows * m.cols); };
    return (copies_a(a_.cols) ? size(a_) : 0) + (b_.col_stride == 1 ? 1 : 4) * size(b_) +
           (c_.col_stride == 1 ? 0 : 4) * size(c_);
  }

 private:
  // A is read in place if its rows are contiguous, or if the part in use, including gaps, fits in
  // L1. B is read in place if its rows are contiguous and consist of whole vectors, and if the part
  // in use fits in L1 or few rows of A use it.
  static constexpr std::int64_t kSmall = 8192;  // floats
  [[nodiscard]] bool copies_a(std::int64_t depth) const {
    return a_.col_stride != 1 && a_.col_stride * depth > kSmall;
  }
  [[nodiscard]] bool copies_b(Range j, std::int64_t depth) const {
    const bool little = c_.rows <= 2 * kTallRows || b_.row_stride * depth <= kSmall;
    return b_.col_stride != 1 || j.size % kLanes != 0 || !little;
  }

  void run_block(Range i, Range j, Range k) {
    thread_local Scratch rows_memory, panel_memory;
    float* panels = nullptr;
    if (copies_b(j, k.size)) {
      panels = panel_memory.get(round_up(j.size, kLanes) * k.size);
      if (i.begin == 0)  // the other blocks of rows reuse the panels
        for (std::int64_t p = 0; p < j.size; p += kWidth) {
          const Range columns{j.begin + p, std::min(kWidth, j.size - p)};
          pack_panel(b_, k, columns, round_up(columns.size, kLanes), panels + p * k.size);
        }
    }
    const float* rows = nullptr;
    for (std::int64_t p = 0; p < j.size; p += kWidth) {
      const Range columns{j.begin + p, std::min(kWidth, j.size - p)};
      const std::int64_t padded = round_up(columns.size, kLanes), vectors = padded / kLanes;
      if (copies_a(k.size) && (p == 0 || rows_of_tile(vectors) != rows_of_tile(kVectors))) {
        float* packed = rows_memory.get((i.size / kRows + 1) * tile_space(kRows, k.size));
        pack_rows(a_, i, k, rows_of_tile(vectors), packed);
        rows = packed;
      }
      const float* b = panels != nullptr ? panels + p * k.size : &b_(k.begin, columns.begin);
      run_panel(i, columns, k, rows, b, panels != nullptr ? padded : b_.row_stride);
    }
  }

  void run_panel(Range i, Range j, Range k, const float* rows, const float* b,
                 std::int64_t b_step) {
    std::array<float, static_cast<std::size_t>(kTallRows * kWidth)> aside;
    const std::int64_t vectors = round_up(j.size, kLanes) / kLanes;
    const std::int64_t tile_rows = rows_of_tile(vectors);
    const Matrix<const float> begin = k.begin > 0 ? Matrix<const float>(c_) : start_;
    const bool direct = c_.col_stride == 1 && j.size == vectors * kLanes;
    for (std::int64_t r = 0; r < i.size; r += tile_rows) {
      const Range tile_range{i.begin + r, std::min(tile_rows, i.size - r)};
      const Matrix<float> c = part(c_, tile_range, j);
      Tile tile{&a_(tile_range.begin, k.begin),
                a_.row_stride,
                a_.col_stride,
                b,
                b_step,
                k.size,
                c.data,
                c.row_stride,
                nullptr,
                0};
      if (rows != nullptr) {
        tile.a = rows + r / tile_rows * tile_space(tile_rows, k.size);
        tile.a_row = 1;
        tile.a_step = tile_range.size;
      }
      if (!direct) {
        tile.c = aside.data();
        tile.c_row = vectors * kLanes;
      }
      if (begin.data != nullptr) {
        const Matrix<const float> from = part(begin, tile_range, j);
        const bool in_place = direct && from.col_stride == 1;
        tile.start = in_place ? from.data : aside.data();
        tile.start_row = in_place ? from.row_stride : vectors * kLanes;
        if (!in_place) copy_in(from, aside.data(), tile.start_row);
      }
      tile_fn(tile_range.size, vectors)(tile);
      if (!direct) copy_out(tile.c, tile.c_row, c);
    }
  }

  Matrix<const float> a_, b_;
  Matrix<float> c_;
  Matrix<const float> start_;
};

void run(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, Matrix<const float> start) {
  Product plain(a, b, c, start), turned(b.t(), a.t(), c.t(), start.t());
  (plain.price() <= turned.price() ? plain : turned).run();
}

constexpr double kThreadWork = 1 << 21;  // least number of multiply-adds per thread

}  // namespace

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  const auto matrix = [](const float* data, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                         Transpose trans) {
    const Matrix<const float> stored{data, rows, cols, ld, 1};
    return trans == Transpose::no ? stored : Matrix<const float>{data, rows, cols, 1, ld};
  };
  const Matrix<const float> a = matrix(g.a, g.m, g.k, g.lda, g.trans_a);
  const Matrix<const float> b = matrix(g.b, g.k, g.n, g.ldb, g.trans_b);
  const Matrix<float> c{g.c, g.m, g.n, g.ldc, 1};
  Matrix<const float> start{nullptr, g.m, g.n, 0, 1};
  bool from_zero = true;
  if (g.bias != nullptr) {
    start.data = g.bias;  // the same for every row
    from_zero = false;
  }
  if (g.beta != 0) {
    start = c;
    from_zero = false;
  }
  if (g.k == 0) {
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) c(i, j) = from_zero ? 0.0F : start(i, j);
    return;
  }
  const bool by_rows = g.m >= g.n;
  const std::int64_t side = by_rows ? g.m : g.n, other = by_rows ? g.n : g.m;
  const auto grain =
      static_cast<std::int64_t>(kThreadWork / static_cast<double>(other * g.k)) + kWidth;
  parallel_for(side, grain, [&](std::int64_t begin, std::int64_t end) {
    const Range all_rows{0, g.m}, all_cols{0, g.n}, mine{begin, end - begin};
    const auto rows = by_rows ? mine : all_rows, cols = by_rows ? all_cols : mine;
    run({&a(rows.begin, 0), rows.size, g.k, a.row_stride, a.col_stride},
        {&b(0, cols.begin), g.k, cols.size, b.row_stride, b.col_stride}, part(c, rows, cols),
        from_zero ? start : part(start, rows, cols));
  });
}

}  // namespace ringsmith::kernels::cpu::fast
