// Computes a block of C with AVX-512-BF16 or AMX-BF16, in two steps.
//
// 1. Both operands become 32-bit words, each a pair of elements with neighbouring k. They are
//    copied unless they are already stored this way:
//
//      A   (row, pair)      the pairs of a row are contiguous: one word is broadcast, or 16 words
//                           are a row of a tile
//      B   (pair, column)   pair p of 16 columns: a vector, or a row of a tile
//
//    Zeros fill columns up to whole vectors and k up to whole pairs, and for AMX all dimensions up
//    to whole tiles, so that step 2 has no remainders there.
//
// 2. Sums stay in registers while k runs: 6 rows by 4 vectors, as in gemm_tile.hpp, or 2 x 2 tiles,
//    so that each loaded tile is used twice.
//
// Functions with instructions that other processors lack have a target attribute. Tile instructions
// are written in assembler, because g++'s intrinsics do not tell the compiler which memory they
// read.
#include "kernels/cpu/fast/matmul_bf16.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cpuid.h>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "kernels/cpu/fast/transpose.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

// ---- capabilities of the processor ----

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros if there is no such leaf
  return r;
}

// Bits of XCR0: the registers that the operating system saves for a thread.
constexpr unsigned kSavesZmm = 0xe6, kSavesTiles = 3U << 17;
bool system_saves(unsigned registers) {
  constexpr unsigned kOsxsave = 1U << 27;
  if ((cpuid(1, 0).ecx & kOsxsave) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & registers) == registers;
}

bool has_avx512_bf16() {
  constexpr unsigned kAvx512f = 1U << 16, kBf16 = 1U << 5;
  return system_saves(kSavesZmm) && (cpuid(7, 0).ebx & kAvx512f) != 0 &&
         (cpuid(7, 1).eax & kBf16) != 0;
}

// Linux (since 5.16) saves the 8 KiB of tiles only for processes that request it. One request
// covers all threads.
bool has_amx_bf16() {
  constexpr unsigned kTilesAndBf16 = 1U << 24 | 1U << 22;
  constexpr int kRequestPermission = 0x1023,
                kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return system_saves(kSavesTiles) && (cpuid(7, 0).edx & kTilesAndBf16) == kTilesAndBf16 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// ---- step 1: pairs ----

using Pair = std::uint32_t;  // the lower half has the even k
constexpr std::int64_t kTilePairs = 16, kTileDepth = 2 * kTilePairs;

// Pairs, or sums, in rows of `stride`. Rows of pairs have an additional cache line, because rows a
// power of two apart would compete for a few cache sets.
template <class T>
struct Packed {
  T* data;
  std::int64_t rows, cols, stride;
  [[nodiscard]] T* row(std::int64_t r) const { return data + r * stride; }
  operator Packed<const T>() const { return {data, rows, cols, stride}; }
};

// Memory in whole cache lines, because a row of a tile is one line.
class Scratch {
 public:
  Packed<Pair> get(std::int64_t rows, std::int64_t cols) {
    const std::int64_t stride = whole_tiles(cols) + kTileSide;
    memory_.resize(static_cast<std::size_t>(rows * stride / kTileSide));
    return {reinterpret_cast<Pair*>(memory_.data()), rows, cols, stride};
  }

 private:
  struct alignas(64) Line {
    std::array<Pair, kTileSide> pairs;
  };
  std::vector<Line> memory_;
};

// Row r of the result has the pairs of row r of m, padded with zeros. The result is m itself if m
// is stored this way, otherwise a copy in `memory`.
Packed<const Pair> pairs_along_rows(const Matrix<const bf16>& m, std::int64_t rows,
                                    std::int64_t pairs, Scratch& memory) {
  const bool contiguous = m.col_stride == 1;
  const bool whole_words = m.cols == 2 * pairs && m.row_stride % 2 == 0 &&
                           reinterpret_cast<std::uintptr_t>(m.data) % sizeof(Pair) == 0;
  if (contiguous && whole_words && m.rows == rows)
    return {reinterpret_cast<const Pair*>(m.data), rows, pairs, m.row_stride / 2};
  const Packed<Pair> out = memory.get(rows, pairs);
  for (std::int64_t r = 0; r < rows; ++r) {
    Pair* const to = out.row(r);
    std::fill(to + (contiguous && r < m.rows ? m.cols / 2 : 0), to + pairs, Pair{0});
    if (r >= m.rows) continue;
    if (contiguous)
      std::memcpy(to, &m(r, 0), static_cast<std::size_t>(m.cols) * sizeof(bf16));
    else
      for (std::int64_t k = 0; k < m.cols; ++k)
        to[k / 2] |= static_cast<Pair>(m(r, k).bits) << (k % 2 * 16);
  }
  return out;
}

// Interleaves the contiguous rows 2 p and 2 p + 1 of m into row p of `out`, padded with zeros.
void interleave(const Matrix<const bf16>& m, const Packed<Pair>& out) {
  for (std::int64_t p = 0; p < out.rows; ++p) {
    Pair* __restrict to = out.row(p);
    const std::int64_t filled = 2 * p < m.rows ? m.cols : 0;
    if (2 * p + 1 < m.rows) {
      const bf16 *even = &m(2 * p, 0), *odd = &m(2 * p + 1, 0);
      for (std::int64_t j = 0; j < filled; ++j)
        to[j] = even[j].bits | static_cast<Pair>(odd[j].bits) << 16;
    } else if (filled > 0) {
      const bf16* even = &m(2 * p, 0);
      for (std::int64_t j = 0; j < filled; ++j) to[j] = even[j].bits;
    }
    std::fill(to + filled, to + out.cols, Pair{0});
  }
}

void turn(const Packed<const Pair>& from, const Packed<Pair>& to) {
  transpose(from.data, from.stride, from.rows, from.cols, to.data, to.stride);
}

Packed<const Pair> pack_a(const Matrix<const bf16>& a, std::int64_t rows, std::int64_t pairs) {
  thread_local Scratch memory, aside;
  if (a.col_stride == 1 || a.row_stride != 1) return pairs_along_rows(a, rows, pairs, memory);
  const Packed<Pair> turned = aside.get(pairs, rows), out = memory.get(rows, pairs);
  interleave(a.t(), turned);
  turn(turned, out);
  return out;
}

Packed<const Pair> pack_b(const Matrix<const bf16>& b, std::int64_t pairs, std::int64_t cols) {
  thread_local Scratch memory, aside;
  const Packed<Pair> out = memory.get(pairs, cols);
  if (b.col_stride == 1)
    interleave(b, out);
  else
    turn(pairs_along_rows(b.t(), cols, pairs, aside), out);
  return out;
}

// ---- step 2 with AVX-512-BF16 ----

constexpr int kRows = 6, kVectors = 4;  // 24 of the 32 registers are sums

// c = (or +=) R rows of A, starting at a, times V vectors of columns of B, starting at b.
template <int R, int V>
[[gnu::target("avx512f,avx512bf16")]] void add_vectors(const Pair* a, std::int64_t a_stride,
                                                       const Pair* b, std::int64_t b_stride,
                                                       std::int64_t pairs, float* c,
                                                       std::int64_t c_stride, Store store) {
  __m512 sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sum[r][v] = store == Store::add ? _mm512_loadu_ps(c + r * c_stride + v * kTileSide)
                                      : _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p, b += b_stride) {
    __m512i columns[V];
    for (int v = 0; v < V; ++v) columns[v] = _mm512_loadu_si512(b + v * kTileSide);
    for (int r = 0; r < R; ++r) {
      int word = 0;
      std::memcpy(&word, a + r * a_stride + p,
                  sizeof word);  // the word may be two bf16 of the caller's matrix
      const __m512i row = _mm512_set1_epi32(word);
      for (int v = 0; v < V; ++v)
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], reinterpret_cast<__m512bh>(row),
                                     reinterpret_cast<__m512bh>(columns[v]));
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(c + r * c_stride + v * kTileSide, sum[r][v]);
}

using AddVectors = decltype(&add_vectors<1, 1>);
template <int V, std::size_t... R>
constexpr std::array<AddVectors, sizeof...(R)> add_rows(std::index_sequence<R...>) {
  return {add_vectors<static_cast<int>(R) + 1, V>...};
}
template <int V>
constexpr auto kAddRows = add_rows<V>(std::make_index_sequence<kRows>{});
constexpr std::array<std::array<AddVectors, kRows>, kVectors> kAddVectors = {
    kAddRows<1>, kAddRows<2>, kAddRows<3>, kAddRows<4>};

void add_by_vectors(const Packed<const Pair>& a, const Packed<const Pair>& b,
                    const Packed<float>& c, Store store) {
  for (std::int64_t j = 0; j < c.cols; j += kVectors * kTileSide) {
    const std::int64_t vectors = std::min<std::int64_t>(kVectors, (c.cols - j) / kTileSide);
    for (std::int64_t i = 0; i < c.rows; i += kRows) {
      const std::int64_t rows = std::min<std::int64_t>(kRows, c.rows - i);
      kAddVectors[static_cast<std::size_t>(vectors - 1)][static_cast<std::size_t>(rows - 1)](
          a.row(i), a.stride, b.data + j, b.stride, a.cols, c.row(i) + j, c.stride, store);
    }
  }
}

// ---- step 2 with AMX-BF16 ----

// All eight tiles have the full size: 16 rows of 64 bytes. The processor defines this layout.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

#define RINGSMITH_TILES [[gnu::target("amx-tile,amx-bf16")]]

template <int N>
RINGSMITH_TILES void load_tile(const void* from, std::int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(N) : "memory");
}
template <int N>
RINGSMITH_TILES void store_tile(void* to, std::int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(N) : "memory");
}
template <int N>
RINGSMITH_TILES void begin_tile(const void* sums, std::int64_t row_bytes, Store store) {
  if (store == Store::add)
    load_tile<N>(sums, row_bytes);
  else
    asm volatile("tilezero %%tmm%c0" ::"i"(N));
}
template <int C, int A, int B>
RINGSMITH_TILES void add_tile() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

// R tiles of rows by V tiles of columns, 1 or 2 each. Tiles 0 to 3 hold C, 4 and 5 A, 6 and 7 B.
template <int R, int V>
RINGSMITH_TILES void add_tiles(const Packed<const Pair>& a, const Packed<const Pair>& b,
                               const Packed<float>& c, std::int64_t i, std::int64_t j,
                               Store store) {
  constexpr std::int64_t kWord = 4;
  const std::int64_t a_row = a.stride * kWord, b_row = b.stride * kWord, c_row = c.stride * kWord;
  float *const top = c.row(i) + j, *const bottom = c.row(i + kTileSide) + j;
  begin_tile<0>(top, c_row, store);
  if constexpr (V == 2) begin_tile<1>(top + kTileSide, c_row, store);
  if constexpr (R == 2) begin_tile<2>(bottom, c_row, store);
  if constexpr (R == 2 && V == 2) begin_tile<3>(bottom + kTileSide, c_row, store);
  for (std::int64_t p = 0; p < a.cols; p += kTilePairs) {
    load_tile<4>(a.row(i) + p, a_row);
    if constexpr (R == 2) load_tile<5>(a.row(i + kTileSide) + p, a_row);
    load_tile<6>(b.row(p) + j, b_row);
    if constexpr (V == 2) load_tile<7>(b.row(p) + j + kTileSide, b_row);
    add_tile<0, 4, 6>();
    if constexpr (V == 2) add_tile<1, 4, 7>();
    if constexpr (R == 2) add_tile<2, 5, 6>();
    if constexpr (R == 2 && V == 2) add_tile<3, 5, 7>();
  }
  store_tile<0>(top, c_row);
  if constexpr (V == 2) store_tile<1>(top + kTileSide, c_row);
  if constexpr (R == 2) store_tile<2>(bottom, c_row);
  if constexpr (R == 2 && V == 2) store_tile<3>(bottom + kTileSide, c_row);
}

RINGSMITH_TILES void add_by_tiles(const Packed<const Pair>& a, const Packed<const Pair>& b,
                                  const Packed<float>& c, Store store) {
  static constexpr TileConfig kConfig;
  asm volatile("ldtilecfg %0" ::"m"(kConfig));
  for (std::int64_t j = 0; j < c.cols; j += 2 * kTileSide)
    for (std::int64_t i = 0; i < c.rows; i += 2 * kTileSide) {
      const bool two_down = c.rows - i > kTileSide, two_across = c.cols - j > kTileSide;
      const auto add = two_down ? (two_across ? add_tiles<2, 2> : add_tiles<2, 1>)
                                : (two_across ? add_tiles<1, 2> : add_tiles<1, 1>);
      add(a, b, c, i, j, store);
    }
  asm volatile("tilerelease");  // otherwise each context switch saves 8 KiB
}

#undef RINGSMITH_TILES

}  // namespace

bool processor_has(Bf16Products how) {
  static const bool avx512 = has_avx512_bf16();
  if (how == Bf16Products::amx_bf16) {
    static const bool amx = has_amx_bf16();
    return amx;
  }
  return how == Bf16Products::widened || avx512;
}

void product_bf16(const Matrix<const bf16>& a, const Matrix<const bf16>& b,
                  const Matrix<float>& sums, Store store, Bf16Products how) {
  const bool tiles = how == Bf16Products::amx_bf16;
  const std::int64_t rows = tiles ? whole_tiles(a.rows) : a.rows, cols = whole_tiles(b.cols);
  const std::int64_t pairs =
      tiles ? (a.cols + kTileDepth - 1) / kTileDepth * kTilePairs : (a.cols + 1) / 2;
  const Packed<const Pair> left = pack_a(a, rows, pairs), right = pack_b(b, pairs, cols);
  const Packed<float> c{sums.data, rows, cols, sums.row_stride};
  tiles ? add_by_tiles(left, right, c, store) : add_by_vectors(left, right, c, store);
}

}  // namespace ringsmith::kernels::cpu::fast

#else

namespace ringsmith::kernels::cpu::fast {

bool processor_has(Bf16Products how) { return how == Bf16Products::widened; }

void product_bf16(const Matrix<const bf16>&, const Matrix<const bf16>&, const Matrix<float>&, Store,
                  Bf16Products) {}

}  // namespace ringsmith::kernels::cpu::fast

#endif
