// Ranks as threads, each with buffers on a device. Ranks share devices if there are too few.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/stream.hpp"
#include "tests/comm/cuda/connected.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/device_bytes.hpp"
#include "tests/support/same_value.hpp"

namespace ringsmith::test {

// n elements on a group's device between guard bytes, `offset` bytes after an aligned address.
template <class T>
class DeviceData {
 public:
  DeviceData(comm::ProcessGroup& group, bool own, std::vector<T> values, std::size_t offset = 0)
      : device_(group.device()), n_(values.size()), begin_(kGuard + offset) {
    const std::size_t bytes = begin_ + n_ * sizeof(T) + kGuard;
    if (own) {
      memory_ = group.allocate_on(device_, Bytes(bytes));
      data_ = memory_->data();
    } else {
      user_ = device_bytes(device_, bytes);
      data_ = user_.get();
    }
    pattern_.assign(bytes, std::byte{0xA5});
    if (n_ > 0) std::memcpy(pattern_.data() + begin_, values.data(), n_ * sizeof(T));
    copy_on_device(data_, pattern_.data(), bytes, device_);
  }
  [[nodiscard]] comm::Buffer buffer() const {
    return {data_ + begin_, Elements(n_), dtype_of<T>()};
  }
  // Returns the number of elements that are not bit-identical, or n + 1 if a guard was overwritten.
  [[nodiscard]] std::size_t wrong(const std::vector<T>& expected) const {
    std::vector<std::byte> got(pattern_.size());
    copy_on_device(got.data(), data_, got.size(), device_);
    const auto guarded = [&](std::size_t from, std::size_t to) {
      return std::equal(got.begin() + static_cast<std::ptrdiff_t>(from),
                        got.begin() + static_cast<std::ptrdiff_t>(to),
                        pattern_.begin() + static_cast<std::ptrdiff_t>(from));
    };
    if (!guarded(0, begin_) || !guarded(begin_ + n_ * sizeof(T), got.size())) return n_ + 1;
    std::size_t bad = 0;
    for (std::size_t i = 0; i < n_; ++i)
      bad += same_value(got.data() + begin_ + i * sizeof(T), expected[i]) ? 0 : 1;
    return bad;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  Device device_;
  std::size_t n_, begin_;
  std::shared_ptr<comm::CommMemory> memory_;
  std::shared_ptr<std::byte> user_;
  std::byte* data_ = nullptr;
  std::vector<std::byte> pattern_;
};

// Returns values whose sum over the ranks depends on the order of the additions. Integers are
// arbitrary bits.
template <class T>
std::vector<T> random_values(std::size_t n, int rank, unsigned seed = 0) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(n) + seed);
  std::vector<T> x(n);
  for (T& v : x) {
    if constexpr (std::is_integral_v<T>)
      v = static_cast<T>(random());
    else
      v = static_cast<T>(std::ldexp(static_cast<float>(random() % 2000) - 1000.0F,
                                    static_cast<int>(random() % 7) - 6));
  }
  return x;
}

// Runs rank r on device r modulo min(devices, connected_devices()).
template <class Result>
std::vector<Result> run_on_devices(int world, comm::GroupOptions options,
                                   const std::function<Result(comm::ProcessGroup&)>& body,
                                   int devices = 8) {
  return run_threads<Result>(
      world,
      [&](comm::ProcessGroup& group) {
        const DeviceGuard guard(group.device());
        // On a shared stream, one rank's work would wait for another rank's.
        const StreamGuard stream(Stream::create(group.device()));
        return body(group);
      },
      options,
      [&](comm::GroupOptions& mine, int rank) {
        mine.device = Device::cuda(rank % std::min(devices, connected_devices()));
      });
}

}  // namespace ringsmith::test
