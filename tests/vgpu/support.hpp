// A stream and typed device memory for the tests of CUDA code.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/launch.hpp"

namespace ringsmith::testing {

class TestStream {
 public:
  TestStream() { cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~TestStream() {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void synchronize() const { cuda_check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n) { cuda_check(cudaMalloc(&data_, n * sizeof(T))); }
  DeviceArray(const std::vector<T>& values, cudaStream_t stream) : DeviceArray(values.size()) {
    cuda_check(
        cudaMemcpyAsync(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice, stream));
    cuda_check(cudaStreamSynchronize(stream));
  }
  ~DeviceArray() { (void)cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // Waits for the stream.
  [[nodiscard]] std::vector<T> host(cudaStream_t stream) const {
    std::vector<T> values(size_);
    cuda_check(
        cudaMemcpyAsync(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost, stream));
    cuda_check(cudaStreamSynchronize(stream));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace ringsmith::testing
