// The innermost part of a matrix product: a tile of C that stays in registers while k runs.
//
//          B panel  [ b0 | b1 | b2 | b3 ]   row k
//      A  a0 ->     [ c00  c01  c02  c03 ]
//    col  a1 ->     [ c10  c11  c12  c13 ]   c_ij += a_i * b_j,  k = 0, 1, 2, ...
//     k   ..        [ ..                 ]
//
// One step loads 4 vectors of B, broadcasts 6 numbers of A and does 24 multiply-adds. Each vector
// is used 6 times and each number 4 times, so the bottleneck is the arithmetic, not the loads. The
// independent sums hide the latency of a multiply-add. AVX has 16 registers instead of 32, so its
// step has 2 vectors and 12 multiply-adds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ringsmith::kernels::cpu::fast {
namespace {

#if defined(__AVX512F__)
inline constexpr std::int64_t kLanes = 16, kVectors = 4;  // 24 of the 32 registers are sums
#elif defined(__AVX__)
inline constexpr std::int64_t kLanes = 8, kVectors = 2;  // 12 of the 16 registers are sums
#elif defined(__aarch64__)
inline constexpr std::int64_t kLanes = 4, kVectors = 4;  // 24 of the 32 registers are sums
#else
inline constexpr std::int64_t kLanes = 4, kVectors = 2;
#endif
inline constexpr std::int64_t kRows = 6, kWidth = kLanes * kVectors;
inline constexpr std::int64_t kTallRows = 12;  // of a narrow tile, to use more accumulators

typedef float Vec __attribute__((vector_size(kLanes * 4)));
// load() and store() compile to one instruction each, for any address.
[[gnu::always_inline]] inline Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
[[gnu::always_inline]] inline void store(float* to, const Vec& v) { std::memcpy(to, &v, sizeof v); }

// Element (r, k) of A is a[r * a_row + k * a_step].
struct Tile {
  const float* a;
  std::int64_t a_row, a_step;
  const float* b;
  std::int64_t b_step;  // from row k to row k + 1
  std::int64_t depth;
  float* c;
  std::int64_t c_row;
  const float* start;  // initial value of the sums, laid out like c, or null for zeros
  std::int64_t start_row;
};

template <int R, int V>
void run_tile(const Tile& t) {
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)  // prefetch the next tile's C, usually the tile below
    for (int v = 0; v < V; ++v) __builtin_prefetch(t.c + (R + r) * t.c_row + v * kLanes, 1);
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sum[r][v] = t.start != nullptr ? load(t.start + r * t.start_row + v * kLanes) : Vec{};
  const float* a = t.a;
  const float* b = t.b;
  const std::int64_t a_row = t.a_row, a_step = t.a_step, b_step = t.b_step;
  for (std::int64_t k = 0; k < t.depth; ++k, a += a_step, b += b_step) {
    Vec row[V];
    for (int v = 0; v < V; ++v) row[v] = load(b + v * kLanes);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * a_row] * row[v];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(t.c + r * t.c_row + v * kLanes, sum[r][v]);
}

using TileFn = void (*)(const Tile&);

template <int V, std::size_t... R>
constexpr std::array<TileFn, sizeof...(R)> tiles_of(std::index_sequence<R...>) {
  return {run_tile<static_cast<int>(R) + 1, V>...};
}
template <int V, int N>
constexpr auto kTiles = tiles_of<V>(std::make_index_sequence<N>{});

inline TileFn tile_fn(std::int64_t rows, std::int64_t vectors) {
  const auto r = static_cast<std::size_t>(rows - 1);
  if (vectors == 1) return kTiles<1, kTallRows>[r];
  if constexpr (kVectors == 4) {
    if (vectors == 2) return kTiles<2, kTallRows>[r];
    if (vectors == 3) return kTiles<3, kRows>[r];
  }
  return kTiles<kVectors, kRows>[r];
}
inline std::int64_t rows_of_tile(std::int64_t vectors) {
  return 2 * vectors <= kVectors ? kTallRows : kRows;
}

}  // namespace
}  // namespace ringsmith::kernels::cpu::fast
