// The oracle of reduce(): one element at a time. Tests compare reduce_vector.cpp with it bit for
// bit.
#include "kernels/reduce.hpp"

#include <cstring>

#include "kernels/cpu/reduce_ops.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class T, class Op>
void reduce_elements(std::span<const ReduceSource> sources, std::span<std::byte* const> outputs,
                     std::size_t count, double scale) {
  for (std::size_t i = 0; i < count; ++i) {
    T result{};
    for (std::size_t s = 0; s < sources.size(); ++s) {
      T x;
      std::memcpy(&x, sources[s].data + i * sizeof(T), sizeof(T));
      if (sources[s].scaled) x = scaled(x, scale);
      result = s == 0 ? x : combine<Op>(result, x);
    }
    for (std::byte* output : outputs) std::memcpy(output + i * sizeof(T), &result, sizeof(T));
  }
}

}  // namespace

void reduce_oracle(DType dtype, Reduction op, std::span<const ReduceSource> sources,
                   std::span<std::byte* const> outputs, Elements count, double scale) {
  check_reduce(dtype, sources, scale);
  visit_reduction(dtype, op, [&]<class T, class Op>(TypeTag<T>, TypeTag<Op>) {
    reduce_elements<T, Op>(sources, outputs, count.value, scale);
  });
}

}  // namespace ringsmith::kernels::cpu
