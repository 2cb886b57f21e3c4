// The oracles of softmax and log_softmax. In Mode::fast they call the fast versions.
#include "kernels/softmax.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

// Calls f(offset) for each slice. Element j of a slice is at offset + j * inner.
template <class F>
void for_each_slice(Slices s, const F& f) {
  for (std::int64_t o = 0; o < s.outer; ++o)
    for (std::int64_t i = 0; i < s.inner; ++i) f(o * s.n * s.inner + i);
}

template <class T>
T largest_of(const T* x, Slices s) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t j = 0; j < s.n; ++j) {
    const T value = x[j * s.inner];
    if (value > largest || std::isnan(value)) largest = value;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// As in PyTorch, adds in lanes over the last dimension, and in order over any other.
template <class T, class Term>
T slice_sum(Slices s, const Term& term) {
  if (s.inner == 1) return lane_sum<T>(s.n, term);
  T sum{};
  for (std::int64_t j = 0; j < s.n; ++j) sum += term(j);
  return sum;
}

}  // namespace

template <class T>
void softmax(std::span<const T> in, std::span<T> out, Slices s) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::softmax(in, out, s);
  for_each_slice(s, [&](std::int64_t offset) {
    const T* x = in.data() + offset;
    T* y = out.data() + offset;
    const T m = largest_of(x, s);
    for (std::int64_t j = 0; j < s.n; ++j) y[j * s.inner] = std::exp(x[j * s.inner] - m);
    const T sum = slice_sum<T>(s, [&](std::int64_t j) { return y[j * s.inner]; });
    const T scale = 1 / sum;
    for (std::int64_t j = 0; j < s.n; ++j)
      y[j * s.inner] = s.inner == 1 ? y[j * s.inner] * scale : y[j * s.inner] / sum;
  });
}

template <class T>
void softmax_backward(std::span<const T> grad, std::span<const T> out, std::span<T> result,
                      Slices s) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::softmax_backward(grad, out, result, s);
  for_each_slice(s, [&](std::int64_t offset) {
    const T* dy = grad.data() + offset;
    const T* y = out.data() + offset;
    T* dx = result.data() + offset;
    const T dot = slice_sum<T>(s, [&](std::int64_t j) { return dy[j * s.inner] * y[j * s.inner]; });
    for (std::int64_t j = 0; j < s.n; ++j)
      dx[j * s.inner] = (dy[j * s.inner] - dot) * y[j * s.inner];
  });
}

template <class T>
void log_softmax(std::span<const T> in, std::span<T> out, Slices s) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::log_softmax(in, out, s);
  for_each_slice(s, [&](std::int64_t offset) {
    const T* x = in.data() + offset;
    T* y = out.data() + offset;
    const T m = largest_of(x, s);
    const T sum = slice_sum<T>(s, [&](std::int64_t j) { return std::exp(x[j * s.inner] - m); });
    const T log_sum = std::log(sum);
    for (std::int64_t j = 0; j < s.n; ++j) y[j * s.inner] = x[j * s.inner] - m - log_sum;
  });
}

template <class T>
void log_softmax_backward(std::span<const T> grad, std::span<const T> out, std::span<T> result,
                          Slices s) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::log_softmax_backward(grad, out, result, s);
  for_each_slice(s, [&](std::int64_t offset) {
    const T* dy = grad.data() + offset;
    const T* y = out.data() + offset;
    T* dx = result.data() + offset;
    const T sum = slice_sum<T>(s, [&](std::int64_t j) { return dy[j * s.inner]; });
    for (std::int64_t j = 0; j < s.n; ++j)
      dx[j * s.inner] = dy[j * s.inner] - std::exp(y[j * s.inner]) * sum;
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(softmax)
RINGSMITH_FLOAT_AND_DOUBLE(softmax_backward)
RINGSMITH_FLOAT_AND_DOUBLE(log_softmax)
RINGSMITH_FLOAT_AND_DOUBLE(log_softmax_backward)

}  // namespace ringsmith::kernels::cpu
