// kernels::f(device, args...): the form of a kernel that the floors above call.
//
//   kernels::softmax(x.device(), in, out, slices);
//
//   cpu      kernels::cpu::softmax(in, out, slices), done when it returns
//   cuda:i   kernels::cuda::softmax(in, out, slices) with cuda:i as the current device: queued on
//            the calling thread's current stream there (runtime/device/stream.hpp)
//
// The arguments are the same for both; their memory must be on the device. Each family's header
// ends with the list of its kernels in these forms. A kernel that is a template deduces its types:
// name them in the arguments (a View<const float>, not a View<float> that could become one).
#pragma once

#include <utility>

#include "runtime/device/device.hpp"

#define RINGSMITH_ON_DEVICE(kernel)              \
  template <class... Args>                       \
  void kernel(Device device, Args&&... args) {   \
    if (device.is_cpu()) {                       \
      cpu::kernel(std::forward<Args>(args)...);  \
    } else {                                     \
      const DeviceGuard current(device);         \
      cuda::kernel(std::forward<Args>(args)...); \
    }                                            \
  }

// At the end of a source: the two instances of a kernel that is a template.
#define RINGSMITH_FLOAT_AND_DOUBLE(kernel)        \
  template decltype(kernel<float>) kernel<float>; \
  template decltype(kernel<double>) kernel<double>;
