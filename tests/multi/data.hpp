// Inputs whose reductions are exact in any order, their serial results, and guarded buffers.
#pragma once

#include <cstring>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "tests/support/device_bytes.hpp"
#include "tests/support/same_value.hpp"

namespace ringsmith::test {

// The value of a rank at index i. `seed` makes the calls differ.
template <class T>
T contribution(comm::ReduceOp op, int world, int rank, std::size_t i, unsigned seed) {
  const std::size_t h = (i * 7 + static_cast<std::size_t>(rank) * 13 + seed * 31) % 1021;
  switch (op) {
    case comm::ReduceOp::prod:
      // Powers of two: exact in every type, and modulo 2^k for integers.
      return T(h % 3 == 0 ? 2.0F : 1.0F);
    case comm::ReduceOp::avg:
      // Only one rank contributes, so no order of additions matters.
      return T(i % static_cast<std::size_t>(world) == static_cast<std::size_t>(rank)
                   ? static_cast<float>(h % 17) - 8.0F
                   : 0.0F);
    default:
      if constexpr (std::is_unsigned_v<T>)
        return static_cast<T>(h % 251);
      else
        return T(static_cast<float>(h % 17) - 8.0F);
  }
}

template <class T>
T expected(comm::ReduceOp op, int world, std::size_t i, unsigned seed) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  const auto wide = [&](int r) {
    const T x = contribution<T>(op, world, r, i, seed);
    if constexpr (std::is_integral_v<T>)
      return static_cast<std::uint64_t>(x);
    else if constexpr (sizeof(T) == 2)
      return static_cast<double>(static_cast<float>(x));
    else
      return static_cast<double>(x);
  };
  const auto narrow = [](Wide x) {
    if constexpr (sizeof(T) == 2)
      return T(static_cast<float>(x));
    else
      return static_cast<T>(x);
  };
  if (op == comm::ReduceOp::avg) {
    // x times fl(1/world), computed in f32 for 16-bit types, otherwise in T.
    const int owner = static_cast<int>(i % static_cast<std::size_t>(world));
    const T x = contribution<T>(op, world, owner, i, seed);
    if constexpr (std::is_same_v<T, double>)
      return x * (1.0 / world);
    else if constexpr (sizeof(T) == 2)
      return T(static_cast<float>(x) * (1.0F / static_cast<float>(world)));
    else
      return static_cast<T>(x * static_cast<T>(1.0F / static_cast<float>(world)));
  }
  Wide result = wide(0);
  for (int r = 1; r < world; ++r) {
    const Wide x = wide(r);
    bool less = x < result;
    if constexpr (std::is_integral_v<T>) less = static_cast<T>(x) < static_cast<T>(result);
    if (op == comm::ReduceOp::sum) result += x;
    if (op == comm::ReduceOp::prod) result *= x;
    if (op == comm::ReduceOp::min && less) result = x;
    if (op == comm::ReduceOp::max && !less) result = x;
  }
  return narrow(result);
}

// Returns value(0) to value(count - 1) for the functions above, whose values repeat after 1,021
// elements per rank. Copies the repetitions, because the emulated processor of tests/rdma is slow.
template <class T, class F>
std::vector<T> repeated(std::size_t count, int world, F&& value) {
  const std::size_t period = 1021 * static_cast<std::size_t>(world);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = i < period ? value(i) : values[i - period];
  return values;
}

// n elements between guard bytes, on the group's device. own: in the group's communication memory,
// otherwise in ordinary memory. The byte offset need not be aligned. On a GPU, fill() and wrong()
// go through a copy in host memory.
template <class T>
class Guarded {
 public:
  Guarded(comm::ProcessGroup& group, bool own, std::size_t n, std::size_t byte_offset = 0)
      : n_(n), begin_(kGuard + byte_offset), bytes_(begin_ + n * sizeof(T) + kGuard) {
    device_ = group.device();
    if (own)
      memory_ = group.allocate_on(device_, Bytes(bytes_));
    else if (!device_.is_cpu())
      user_ = device_bytes(device_, bytes_);
    if (!device_.is_cpu() || !own) mirror_.resize(bytes_);
    data_ = own ? memory_->data() : device_.is_cpu() ? mirror_.data() : user_.get();
    std::memset(host(), 0xA5, bytes_);
    upload();
  }
  [[nodiscard]] comm::Buffer buffer() { return {data_ + begin_, Elements(n_), dtype_of<T>()}; }
  template <class F>
  void fill(F&& value) {
    for (std::size_t i = 0; i < n_; ++i) {
      const T x = value(i);
      std::memcpy(host() + begin_ + i * sizeof(T), &x, sizeof(T));
    }
    upload();
  }
  // Returns the number of elements that differ from value(i) (same_value()), or n + 1 if a guard
  // was overwritten. The second form compares elements [begin, begin + n).
  template <class F>
  [[nodiscard]] std::size_t wrong(F&& value) const {
    return wrong(0, n_, value);
  }
  template <class F>
  [[nodiscard]] std::size_t wrong(std::size_t begin, std::size_t n, F&& value) const {
    download();
    const std::byte* const data = host();
    std::size_t bad = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const T x = value(i);
      bad += same_value(data + begin_ + (begin + i) * sizeof(T), x) ? 0 : 1;
    }
    for (std::size_t i = 0; i < kGuard; ++i)
      if (data[i] != std::byte{0xA5} || data[begin_ + n_ * sizeof(T) + i] != std::byte{0xA5})
        return n + 1;
    return bad;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  // The values, in memory that host code may access.
  [[nodiscard]] std::byte* host() const {
    return mirror_.empty() ? data_ : const_cast<std::byte*>(mirror_.data());
  }
  void upload() { copy_on_device(data_, host(), bytes_, device_); }
  void download() const { copy_on_device(host(), data_, bytes_, device_); }

  std::size_t n_, begin_, bytes_;
  Device device_;
  std::shared_ptr<comm::CommMemory> memory_;
  std::shared_ptr<std::byte> user_;
  std::vector<std::byte> mirror_;
  std::byte* data_ = nullptr;
};

}  // namespace ringsmith::test
