// kernels::f(device, args...): the form of a kernel that the floors above call.
//
//   kernels::softmax(x.device(), in, out, slices);
//
//   cpu      kernels::cpu::softmax(in, out, slices), done when it returns
//   cuda:i   kernels::cuda::softmax(in, out, slices) with cuda:i as the current device: queued on
//            the calling thread's current stream there (runtime/device/stream.hpp)
//
// The arguments are the same for both; their memory must be on the device. A kernel of a family is
// declared once, by its signature, whoever has a version of it:
//
//   template <class T>
//   using SoftmaxFn = void(std::span<const T> x, std::span<T> y, Slices slices);
//   RINGSMITH_KERNEL(softmax, SoftmaxFn)       cpu::softmax and cuda::softmax, of float and double,
//                                              and kernels::softmax, which takes the device first
//   namespace cpu::fast {
//   SoftmaxFn<float> softmax;                  the fast version of cpu::softmax
//   }
//
// A kernel that is a template deduces its types: name them in the arguments (a View<const float>,
// not a View<float> that could become one).
#pragma once

#include <utility>

#include "runtime/base/error.hpp"
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

#define RINGSMITH_KERNEL(kernel, Signature) \
  namespace cpu {                           \
  Signature<float> kernel;                  \
  Signature<double> kernel;                 \
  }                                         \
  namespace cuda {                          \
  Signature<float> kernel;                  \
  Signature<double> kernel;                 \
  }                                         \
  RINGSMITH_ON_DEVICE(kernel)

// The same as templates, with their instances of float and double.
#define RINGSMITH_KERNEL_TEMPLATE(kernel, Signature) \
  namespace cpu {                                    \
  template <class T>                                 \
  Signature<T> kernel;                               \
  }                                                  \
  namespace cuda {                                   \
  template <class T>                                 \
  Signature<T> kernel;                               \
  }                                                  \
  RINGSMITH_ON_DEVICE(kernel)

// At the end of a source: the two instances of a kernel that is a template.
#define RINGSMITH_FLOAT_AND_DOUBLE(kernel)        \
  template decltype(kernel<float>) kernel<float>; \
  template decltype(kernel<double>) kernel<double>;
