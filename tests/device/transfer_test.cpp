#include "runtime/device/transfer.hpp"

#include <vector>

#include "runtime/device/memory.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using ringsmith::test::Gate;

namespace {

class Block {
 public:
  Block(Device device, std::size_t size)
      : device_(device), data_(device_allocator::allocate(device, Bytes(size))) {}
  ~Block() { device_allocator::free(device_, data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Device device_;
  std::byte* data_;
};

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

}  // namespace

TEST_CASE("bytes arrive unchanged: host, device, another device, host") {
  const Device first = Device::cuda(0), last = Device::cuda(device_count() - 1);
  constexpr std::size_t kGuard = 3;  // also misaligns the start
  for (const std::size_t size : {0UL, 1UL, 63UL, 4097UL, 1'000'003UL, (17UL << 20) + 5}) {
    const std::vector<std::byte> in = pattern(size);
    std::vector<std::byte> out(size + 2 * kGuard, std::byte{0xEE});
    const Block a(first, size + 2 * kGuard), b(last, size + 2 * kGuard), c(last, size);
    std::vector<std::byte> source = in;
    transfer(a.data() + kGuard, first, source.data(), Device::cpu(), Bytes(size));
    source.assign(size, std::byte{});  // the copy must have the old contents
    transfer(b.data() + kGuard, last, a.data() + kGuard, first, Bytes(size));
    transfer(c.data(), last, b.data() + kGuard, last, Bytes(size));
    transfer(out.data() + kGuard, Device::cpu(), c.data(), last, Bytes(size));
    REQUIRE(std::equal(in.begin(), in.end(), out.begin() + kGuard));
    for (std::size_t i = 0; i < kGuard; ++i) {
      REQUIRE(out[i] == std::byte{0xEE});
      REQUIRE(out[out.size() - 1 - i] == std::byte{0xEE});
    }
  }
}

TEST_CASE(
    "a copy between devices comes after what the target's stream has queued, and before what "
    "it queues next") {
  if (device_count() < 2) return;
  const Device source = Device::cuda(0), target = Device::cuda(1);
  constexpr std::size_t kSize = 1000;
  const Block a(source, kSize), b(target, kSize), old(target, kSize);
  const std::vector<std::byte> ones(kSize, std::byte{1}), twos(kSize, std::byte{2});
  transfer(a.data(), source, ones.data(), Device::cpu(), Bytes(kSize));
  transfer(b.data(), target, twos.data(), Device::cpu(), Bytes(kSize));
  {
    Gate gate(Stream::current(target));
    transfer(old.data(), target, b.data(), target, Bytes(kSize));  // still reads the twos
    transfer(b.data(), target, a.data(), source, Bytes(kSize));    // the host does not wait
    CHECK_FALSE(Stream::current(source).is_idle());
  }
  std::vector<std::byte> seen(kSize);
  transfer(seen.data(), Device::cpu(), old.data(), target, Bytes(kSize));
  CHECK(seen == twos);
  transfer(seen.data(), Device::cpu(), b.data(), target, Bytes(kSize));
  CHECK(seen == ones);
}
