// kernels::f(device, args...): the form in which the layers above call a kernel.
//
//   kernels::softmax(x.device(), in, out, slices);
//
//   cpu      kernels::cpu::softmax(in, out, slices), complete when it returns
//   cuda:i   kernels::cuda::softmax(in, out, slices) with cuda:i as the current device: queued on
//            the calling thread's current stream there (runtime/device/stream.hpp)
//
// The arguments are the same for both, and their memory must be on the device. A kernel of a family
// is declared once, by its signature, for all its versions:
//
//   template <class T>
//   using SoftmaxFn = void(std::span<const T> x, std::span<T> y, Slices slices);
//   RINGSMITH_KERNEL(softmax, SoftmaxFn)       the templates cpu::softmax and cuda::softmax, and
//                                              kernels::softmax, which takes the device first
//   namespace cpu::fast {
//   SoftmaxFn<float> softmax;                  the fast version of cpu::softmax
//   }
//
// The profiler (runtime/device/profiler.hpp) sees every kernel that is called in this form.
//
// kernels::f calls the instance that fits its arguments: float or double or, on devices only and if
// the kernel has such instances, f16 or bf16. (The layers above widen 16-bit operands on the CPU.)
// Callers of cpu::f or cuda::f name the instance: cpu::softmax<float>(x, y, slices).
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/half.hpp"
#include "kernels/work.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"

#define RINGSMITH_PROFILED(kernel, ...) \
  profile::KernelScope profiled;        \
  if (profile::enabled()) [[unlikely]]  \
    profiled.begin(#kernel, device, work_of(#kernel, __VA_ARGS__));

#define RINGSMITH_ON_DEVICE(kernel)              \
  template <class... Args>                       \
  void kernel(Device device, Args&&... args) {   \
    RINGSMITH_PROFILED(kernel, args...)          \
    if (device.is_cpu()) {                       \
      cpu::kernel(std::forward<Args>(args)...);  \
    } else {                                     \
      const DeviceGuard current(device);         \
      cuda::kernel(std::forward<Args>(args)...); \
    }                                            \
  }

// Defines kernels::kernel(device, args...) for a kernel that is a template of the element type.
#define RINGSMITH_TAKES(kernel, T) (requires { cpu::kernel<T>(std::forward<Args>(args)...); })
#define RINGSMITH_ON_DEVICE_TYPED(kernel)                                                   \
  template <class... Args>                                                                  \
  void kernel(Device device, Args&&... args) {                                              \
    using T = std::conditional_t<                                                           \
        RINGSMITH_TAKES(kernel, float), float,                                              \
        std::conditional_t<RINGSMITH_TAKES(kernel, bf16), bf16,                             \
                           std::conditional_t<RINGSMITH_TAKES(kernel, f16), f16, double>>>; \
    RINGSMITH_PROFILED(kernel, args...)                                                     \
    if constexpr (kIsHalf<T>) {                                                             \
      const DeviceGuard current(device);                                                    \
      cuda::kernel<T>(std::forward<Args>(args)...);                                         \
    } else if (device.is_cpu()) {                                                           \
      cpu::kernel<T>(std::forward<Args>(args)...);                                          \
    } else {                                                                                \
      const DeviceGuard current(device);                                                    \
      cuda::kernel<T>(std::forward<Args>(args)...);                                         \
    }                                                                                       \
  }

#define RINGSMITH_KERNEL(kernel, Signature) \
  namespace cpu {                           \
  template <class T>                        \
  Signature<T> kernel;                      \
  }                                         \
  namespace cuda {                          \
  template <class T>                        \
  Signature<T> kernel;                      \
  }                                         \
  RINGSMITH_ON_DEVICE_TYPED(kernel)

// Instantiate a kernel for float and double, and for the 16-bit types.
#define RINGSMITH_FLOAT_AND_DOUBLE(kernel)        \
  template decltype(kernel<float>) kernel<float>; \
  template decltype(kernel<double>) kernel<double>;
#define RINGSMITH_HALVES(kernel)              \
  template decltype(kernel<f16>) kernel<f16>; \
  template decltype(kernel<bf16>) kernel<bf16>;
