#include "kernels/matmul.hpp"

#include <cstddef>
#include <vector>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class T>
void matmul_oracle(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, Store store) {
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.cols; ++j) {
      T sum{};
      for (std::int64_t k = 0; k < a.cols; ++k) sum = sum + a(i, k) * b(k, j);
      c(i, j) = store == Store::add ? c(i, j) + sum : sum;
    }
}

template <class T>
void linear_oracle(Matrix<const T> x, Matrix<const T> w, std::span<const T> bias, Matrix<T> y) {
  matmul_oracle<T>(x, w.t(), y, Store::replace);
  if (bias.empty()) return;
  for (std::int64_t i = 0; i < y.rows; ++i)
    for (std::int64_t j = 0; j < y.cols; ++j) y(i, j) += bias[static_cast<std::size_t>(j)];
}

template <class T>
void column_sum_oracle(Matrix<const T> x, std::span<T> sums, Store store) {
  std::vector<T> fresh(sums.size());
  column_sums<T>(x.rows, x.cols, x, fresh.data());
  for (std::size_t c = 0; c < sums.size(); ++c)
    sums[c] = store == Store::add ? sums[c] + fresh[c] : fresh[c];
}

}  // namespace

void matmul(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, Store store) {
  mode() == Mode::fast ? fast::matmul(a, b, c, store) : matmul_oracle(a, b, c, store);
}
void matmul(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, Store store) {
  matmul_oracle(a, b, c, store);
}

namespace {
template <class T>
void each_of_batch(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const Batch& batch,
                   Store store) {
  for (std::int64_t i = 0; i < batch.count; ++i) {
    matmul(a, b, c, store);
    a.data += batch.a;
    b.data += batch.b;
    c.data += batch.c;
  }
}
}  // namespace

void matmul_batch(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, const Batch& batch,
                  Store store) {
  each_of_batch(a, b, c, batch, store);
}
void matmul_batch(Matrix<const double> a, Matrix<const double> b, Matrix<double> c,
                  const Batch& batch, Store store) {
  each_of_batch(a, b, c, batch, store);
}

void linear(Matrix<const float> x, Matrix<const float> w, std::span<const float> bias,
            Matrix<float> y) {
  mode() == Mode::fast ? fast::linear(x, w, bias, y) : linear_oracle(x, w, bias, y);
}
void linear(Matrix<const double> x, Matrix<const double> w, std::span<const double> bias,
            Matrix<double> y) {
  linear_oracle(x, w, bias, y);
}

void column_sum(Matrix<const float> x, std::span<float> sums, Store store) {
  mode() == Mode::fast ? fast::column_sum(x, sums, store) : column_sum_oracle(x, sums, store);
}
void column_sum(Matrix<const double> x, std::span<double> sums, Store store) {
  column_sum_oracle(x, sums, store);
}

}  // namespace ringsmith::kernels::cpu
