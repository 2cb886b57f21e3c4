// The oracles of matrix products and Linear. In Mode::fast they call the fast versions.
#include "kernels/matmul.hpp"

#include <cstddef>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class T>
using SumOf = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
SumOf<T> dot(Matrix<const T> a, Matrix<const T> b, std::int64_t i, std::int64_t j) {
  using S = SumOf<T>;
  S sum{};
  for (std::int64_t k = 0; k < a.cols; ++k)
    sum = sum + static_cast<S>(a(i, k)) * static_cast<S>(b(k, j));
  return sum;
}

}  // namespace

template <class T>
void matmul(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, Store store) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::matmul(a, b, c, store);
  if constexpr (kIsHalf<T>)
    if (mode() == Mode::fast) return fast::matmul_half<T>(a, b, {}, c, store);
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.cols; ++j) {
      const auto sum = dot(a, b, i, j);
      c(i, j) = T(store == Store::add ? static_cast<SumOf<T>>(c(i, j)) + sum : sum);
    }
}

template <class T>
void linear(Matrix<const T> x, Matrix<const T> w, std::span<const T> bias, Matrix<T> y) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::linear(x, w, bias, y);
  if constexpr (kIsHalf<T>)
    if (mode() == Mode::fast) return fast::matmul_half<T>(x, w.t(), bias, y, Store::replace);
  for (std::int64_t i = 0; i < y.rows; ++i)
    for (std::int64_t j = 0; j < y.cols; ++j) {
      auto sum = dot(x, w.t(), i, j);
      if (!bias.empty()) sum += static_cast<SumOf<T>>(bias[static_cast<std::size_t>(j)]);
      y(i, j) = T(sum);
    }
}

template <class T>
void column_sum(Matrix<const T> x, std::span<T> sums, Store store) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::column_sum(x, sums, store);
  std::vector<T> fresh(sums.size());
  column_sums<T>(x.rows, x.cols, x, fresh.data());
  for (std::size_t c = 0; c < sums.size(); ++c)
    sums[c] = store == Store::add ? sums[c] + fresh[c] : fresh[c];
}

template <class T>
void matmul_batch(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const Batch& batch,
                  Store store) {
  for (std::int64_t i = 0; i < batch.count; ++i) {
    matmul(a, b, c, store);
    a.data += batch.a;
    b.data += batch.b;
    c.data += batch.c;
  }
}

RINGSMITH_FLOAT_AND_DOUBLE(matmul)
RINGSMITH_FLOAT_AND_DOUBLE(matmul_batch)
RINGSMITH_FLOAT_AND_DOUBLE(linear)
RINGSMITH_FLOAT_AND_DOUBLE(column_sum)
template decltype(matmul<f16>) matmul<f16>;
template decltype(matmul<bf16>) matmul<bf16>;
template decltype(linear<f16>) linear<f16>;
template decltype(linear<bf16>) linear<bf16>;

}  // namespace ringsmith::kernels::cpu
