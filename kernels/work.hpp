// How much a kernel does: its floating-point operations and its bytes, from its name and arguments.
//
//   matmul (m, k) (k, n)   2 m k n                  a multiplication and an addition for each pair
//   layer_norm             8 for each element       kRules in kernels/cpu/work.cpp has the others
//
// An addition, multiplication, division, comparison, and a call of exp, log, tanh or sqrt count as
// one each. Bytes are those of all operands, once for reading and once for writing: what has to
// move if nothing is in a cache. A table whose rows are picked (embedding) counts with the rows
// that are picked. For the profiler (runtime/device/profiler.hpp): off the hot path.
//
// A type that an argument of a kernel may have, and that says something, has an overload of look().
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

// What the arguments tell.
struct Operands {
  static constexpr std::size_t kMost = 12;
  std::array<Operand, kMost> all{};
  std::size_t count = 0;
  int matrices = 0;
  double inner = 0;    // the length of a product's sums
  double pairs = 0;    // multiplications of a product; 0 for other kernels
  double times = 1;    // so many problems of that kind
  int function = 0;    // of an element-wise kernel: the number of its enumerator
  bool added = false;  // the result is added to what is there: read, and written

  template <class T>
  void add(std::int64_t elements) {
    if (count == kMost) return;
    const auto n = static_cast<double>(elements);
    all[count++] = {n, n * static_cast<double>(sizeof(T)), !std::is_const_v<T>};
  }
};

template <class Argument>
void look(Operands& /*o*/, const Argument& /*says nothing*/) {}
template <class T>
void look(Operands& o, const std::span<T>& s) {
  o.add<T>(static_cast<std::int64_t>(s.size()));
}
template <class T>
void look(Operands& o, const View<T>& view) {
  o.add<T>(view.data == nullptr ? 0 : view.layout.numel());
}

[[nodiscard]] profile::Work work_of(const char* kernel, const Operands& operands);

template <class... Args>
[[gnu::cold, gnu::noinline]] profile::Work work_of(const char* kernel, const Args&... args) {
  Operands operands;
  (look(operands, args), ...);  // finds the overloads of the arguments' types
  return work_of(kernel, operands);
}

}  // namespace ringsmith::kernels
