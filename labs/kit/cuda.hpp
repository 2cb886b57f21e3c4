// Helpers for a lab's CUDA code. The same source compiles for the emulator (kernels/vgpu) and with
// nvcc.
//
//   __global__ void scale(float* x, float a, int n) { ... }
//   kit::launch(scale, blocks, threads, 0, stream, x, 2, n);    // nvcc: scale<<<...>>>(x, 2, n)
//   kit::check(cudaMemcpyAsync(...), "copy to the device");     // throws with the reason
//
// A loop in a kernel that waits for another thread must read through cuda::atomic_ref, or call
// __nanosleep() in every iteration, because the emulator runs other threads during these calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"
#ifdef RINGSMITH_VGPU
#include "labs/kit/loads.hpp"
#endif

namespace kit {

// The task of a kernel that is not implemented yet (kit::todo). A kernel cannot throw to the host,
// so the host's next check() reports it.
inline std::atomic<const char*> missing_task = nullptr;

inline void check(cudaError_t code, const char* what) {
  if (const char* task = missing_task) throw NotAttempted{task};
  if (code == cudaSuccess) return;
  std::string text = std::string(what) + ": " + cudaGetErrorString(code);
#ifdef RINGSMITH_VGPU
  if (*vgpu::why() != '\0') text += std::string(": ") + vgpu::why();
#endif
  throw std::runtime_error(text);
}

#ifdef RINGSMITH_VGPU
// A host thread's tag is passed to the kernels that it launches. In lab 07, the tag is the rank.
inline thread_local int host_tag = 0;
inline thread_local int kernel_tag = 0;

template <class... Parameters>
vgpu::Call tagged_call(void (*kernel)(Parameters...), Parameters... arguments) {
  struct Tagged {
    vgpu::Call call;
    int tag;
  };
  const vgpu::Call call = vgpu::make_call<Parameters...>(kernel, arguments...);
  return {[](const void* p) {
            const auto* tagged = static_cast<const Tagged*>(p);
            kernel_tag = tagged->tag;
            try {
              tagged->call.run(tagged->call.arguments.get());
            } catch (const NotAttempted& missing) {
              static const std::string task = missing.task;
              missing_task = task.c_str();
            }
          },
          std::make_shared<const Tagged>(Tagged{call, host_tag}), call.function};
}
#endif

// Launches the kernel on the stream's device and returns immediately. As in CUDA, an empty grid is
// an error.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
#ifdef RINGSMITH_VGPU
  check(vgpu::launch(tagged_call<Parameters...>(kernel, std::forward<Arguments>(arguments)...),
                     grid, block, shared_bytes, stream),
        "launch");
#else
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                               shared_bytes, stream),
              "launch");
      },
      values);
#endif
}

#ifndef RINGSMITH_VGPU
// Like Loads in labs/kit/loads.hpp, but on a real device and without counting.
template <class T>
class Loads {
 public:
  explicit Loads(const T* elements) : p_(elements) {}
  __device__ T operator[](std::int64_t i) const { return p_[i]; }

 private:
  const T* p_;
};
#endif

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void synchronize() const { check(cudaStreamSynchronize(stream_), "kernel"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// `count` elements that start `offset` elements after the address that cudaMalloc returned, which
// is aligned to 256 bytes. New memory is filled with 0xFF bytes: NaN for floats. The emulator
// detects accesses outside the allocation.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const Stream& stream, std::size_t count, std::size_t offset = 0)
      : stream_(stream), count_(count), offset_(offset) {
    check(cudaMalloc(&base_, std::max<std::size_t>(1, (count + offset) * sizeof(T))), "memory");
    check(cudaMemsetAsync(base_, 0xFF, (count + offset) * sizeof(T), stream.get()), "memset");
  }
  DeviceArray(const Stream& stream, const std::vector<T>& values, std::size_t offset = 0)
      : DeviceArray(stream, values.size(), offset) {
    copy(data(), values.data(), values.size(), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { (void)cudaFree(base_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  [[nodiscard]] T* data() const { return base_ + offset_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> values(count_);
    copy(values.data(), data(), count_, cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  void copy(T* to, const T* from, std::size_t n, cudaMemcpyKind kind) const {
    if (n > 0) check(cudaMemcpyAsync(to, from, n * sizeof(T), kind, stream_.get()), "copy");
    stream_.synchronize();
  }
  const Stream& stream_;
  std::size_t count_, offset_;
  T* base_ = nullptr;
};

}  // namespace kit
