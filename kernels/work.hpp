// Computes the work of a kernel, i.e. its floating-point operations and bytes, from its name and
// arguments.
//
//   matmul (m, k) (k, n)   2 m k n                  a multiplication and an addition for each pair
//   layer_norm             8 for each element       kRules in kernels/cpu/work.cpp has the others
//
// Each addition, multiplication, division, comparison and call of exp, log, tanh or sqrt counts as
// one operation. Bytes are the sizes of all operands, counted twice for an operand that is read and
// written, i.e. the least traffic without caches. If a kernel selects rows or elements of an
// operand (embedding, nll_rows), only the selected ones count. The profiler
// (runtime/device/profiler.hpp) uses these numbers, off the hot path.
//
// Every argument type that contributes to the work has an overload of look().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/view.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith::kernels {

struct Operand {
  double elements = 0, bytes = 0;
  bool written = false;
};

struct Operands {
  static constexpr std::size_t kMost = 12;
  std::array<Operand, kMost> all{};
  std::size_t count = 0;
  int matrices = 0;
  double inner = 0;    // number of terms of each sum or maximum
  double pairs = 0;    // multiplications of a product, 0 for other kernels
  double times = 1;    // number of problems of this kind in a batch
  int function = 0;    // element-wise kernels: the Unary, Binary or Scalar enumerator
  bool added = false;  // the result is added to its destination, which is read and written

  template <class T>
  void add(std::int64_t elements) {
    if (count == kMost) return;
    const auto n = static_cast<double>(elements);
    all[count++] = {n, n * static_cast<double>(sizeof(T)), !std::is_const_v<T>};
  }
};

template <class Argument>
void look(Operands& /*o*/, const Argument& /*adds no work*/) {}
template <class T>
void look(Operands& o, const std::span<T>& s) {
  o.add<T>(static_cast<std::int64_t>(s.size()));
}
template <class T>
void look(Operands& o, const View<T>& view) {
  o.add<T>(view.data == nullptr ? 0 : view.layout.numel());
}

[[nodiscard]] profile::KernelWork work_of(const char* kernel, const Operands& operands);

template <class... Args>
[[gnu::cold, gnu::noinline]] profile::KernelWork work_of(const char* kernel, const Args&... args) {
  Operands operands;
  // ADL also finds the overloads of look() declared in headers included later.
  (look(operands, args), ...);
  return work_of(kernel, operands);
}

}  // namespace ringsmith::kernels
