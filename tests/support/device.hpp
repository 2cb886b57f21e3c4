// The device of a test program: RINGSMITH_TEST_DEVICE (cpu, cuda:1, ...), by default the CPU. CTest
// runs such programs twice, e.g. as autograd and autograd_on_device.
#pragma once

#include <cstdlib>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::test {

inline Device device() {
  static const Device chosen = [] {
    const char* name = std::getenv("RINGSMITH_TEST_DEVICE");
    return name == nullptr ? Device::cpu() : parse_device(name);
  }();
  return chosen;
}

// Returns t itself if it is undefined or already there, otherwise a copy with the same strides and
// offset.
inline Tensor moved(const Tensor& t, Device to) {
  if (!t.defined() || t.device() == to) return t;
  const auto room = static_cast<std::int64_t>(t.storage()->size().value / size_of(t.dtype()));
  const Tensor all = Tensor::from_storage(t.storage(), {room}, {1}, 0, t.dtype());
  return all.to(to).as_strided(t.sizes(), t.strides(), t.storage_offset());
}
inline Tensor on_device(const Tensor& t) { return moved(t, device()); }

}  // namespace ringsmith::test
