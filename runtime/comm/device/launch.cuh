// From a call to a launch: which kernel, and how many threads.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/calls.hpp"

namespace ringsmith::comm::cuda_ipc {

// f(TypeTag<T>) with the element type; bool travels as bytes.
template <class F>
void with_type(DType dtype, F&& f) {
#ifdef RINGSMITH_WEAKEN  // one type is enough to see an order
  if (dtype == DType::f32) return f(TypeTag<float>{});
  throw UsageError("this program has f32 only");
#else
  visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, bool>)
      f(TypeTag<std::uint8_t>{});
    else
      f(TypeTag<T>{});
  });
#endif
}

template <class Call>
dim3 grid_of(const Call& call) {
  return dim3(static_cast<unsigned>(call.blocks));
}
template <class Call>
dim3 block_of(const Call& call) {
  return dim3(static_cast<unsigned>(call.shape.threads));
}

}  // namespace ringsmith::comm::cuda_ipc
