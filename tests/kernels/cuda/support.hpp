// Device arrays for the tests of CUDA kernels, filled from the host and read back.
//
// Every array has kGuard elements of a pattern before and after it, which must be unchanged when
// the array is read back. The array starts `offset` elements after an aligned address, because
// views and buckets may have any alignment.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/scratch.hpp"
#include "runtime/device/stream.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

namespace ringsmith::testing {

constexpr std::size_t kGuard = 64;  // elements, a multiple of every pack

template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T> values, std::size_t offset = 0)
      : size_(values.size()),
        begin_(kGuard + offset),
        host_(begin_ + values.size() + kGuard, pattern()),
        memory_(static_cast<std::int64_t>(host_.size())) {
    for (std::size_t i = 0; i < size_; ++i) host_[begin_ + i] = values[i];
    copy(memory_.data(), host_.data(), cudaMemcpyHostToDevice);
  }
  // Fills the array with garbage that a kernel must overwrite.
  explicit OnDevice(std::size_t size, std::size_t offset = 0)
      : OnDevice(std::vector<T>(size, pattern()), offset) {}

  [[nodiscard]] T* data() const { return memory_.data() + begin_; }
  [[nodiscard]] std::span<T> span() const { return {data(), size_}; }
  [[nodiscard]] std::span<const T> view() const { return {data(), size_}; }

  // Waits for the stream. Throws if a guard was overwritten.
  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> all(host_.size());
    copy(all.data(), memory_.data(), cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + size_;
      if (!inside && std::memcmp(&all[i], &host_[i], sizeof(T)) != 0)
        throw Error("a kernel wrote element " +
                    std::to_string(static_cast<std::ptrdiff_t>(i - begin_)) + " of an array of " +
                    std::to_string(size_));
    }
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {first, first + static_cast<std::ptrdiff_t>(size_)};
  }

 private:
  static T pattern() {
    T value;
    std::memset(static_cast<void*>(&value), sizeof(T) == 1 ? 1 : 0x7a, sizeof value);
    return value;
  }
  void copy(T* to, const T* from, cudaMemcpyKind kind) const {
    const Stream stream = Stream::current();
    cuda_check(cudaMemcpyAsync(to, from, host_.size() * sizeof(T), kind, stream.get()));
    stream.synchronize();
  }

  std::size_t size_, begin_;
  std::vector<T> host_;
  kernels::cuda::Scratch<T> memory_;
};

// Returns true if all elements are equal bit for bit. Any NaN equals any other NaN.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && !(a[i] != a[i] && b[i] != b[i])) return false;
  return true;
}

}  // namespace ringsmith::testing
