#include "runtime/device/memory.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "runtime/base/allocator.hpp"
#include "runtime/device/driver_gate.hpp"
#include "runtime/device/transfer.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace ringsmith;
using ringsmith::test::Gate;

namespace {

const Device kDevice = Device::cuda(0);

std::byte* take(std::size_t size) { return device_allocator::allocate(kDevice, Bytes(size)); }
void give(std::byte* block) { device_allocator::free(kDevice, block); }
AllocatorStats stats() { return device_allocator::stats(kDevice); }

}  // namespace

TEST_CASE("size classes hold what is asked for and waste at most an eighth") {
  std::size_t previous = 0, index = 0;
  for (std::size_t size = 1; size < 200'000; ++size) {
    const SizeClass c = size_class_of(size);
    REQUIRE(c.size >= size);
    REQUIRE((size <= 512 || c.size - size <= size / 8 + 1));
    REQUIRE(c.index == (c.size == previous || previous == 0 ? index : index + 1));
    previous = c.size;
    index = c.index;
  }
  CHECK(size_class_of(0).size == 64);
  CHECK(size_class_of(std::size_t{1} << 40).index < SizeClass::kCount);
}

TEST_CASE("a freed block serves the next request of its stream and class, without the driver") {
  const Stream stream = Stream::create(kDevice);
  const StreamGuard guard(stream);
  std::byte* a = take(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
  const AllocatorStats before = stats();
  give(a);
  CHECK(stats().current == before.current - Bytes(1000));
  CHECK(stats().reserved == before.reserved);
  std::byte* b = take(1020);  // the same size class
  CHECK(b == a);
  CHECK(stats().system_allocations == before.system_allocations);
  CHECK(stats().allocations == before.allocations + 1);
  std::byte* c = take(1020);
  CHECK(c != b);
  CHECK(stats().system_allocations == before.system_allocations + 1);
  std::byte* none = take(0);
  CHECK(none != nullptr);
  for (std::byte* block : {b, c, none}) give(block);
}

TEST_CASE("another stream does not get a block that this one may still be using") {
  std::byte* a = nullptr;
  const Stream one = Stream::create(kDevice), two = Stream::create(kDevice);
  {
    const StreamGuard guard(one);
    a = take(3000);
    give(a);
  }
  {
    const StreamGuard guard(two);
    std::byte* b = take(3000);
    CHECK(b != a);
    give(b);
  }
  const StreamGuard guard(one);
  std::byte* again = take(3000);
  CHECK(again == a);
  give(again);
}

TEST_CASE("a block that another stream uses is reused only after that use") {
  const Stream own = Stream::create(kDevice), user = Stream::create(kDevice);
  const StreamGuard guard(own);
  std::byte* a = take(5000);
  Gate gate(user);  // stands for a kernel of `user` that reads the block
  device_allocator::record_use(kDevice, a, user);
  device_allocator::record_use(kDevice, a, own);  // the block's own stream needs no event
  give(a);
  std::byte* b = take(5000);
  CHECK(b != a);
  give(b);
  gate.open();
  user.synchronize();
  std::set<std::byte*> got{take(5000), take(5000)};
  CHECK(got == std::set<std::byte*>{a, b});
  for (std::byte* block : got) give(block);
}

TEST_CASE("statistics count what is in use, its peak, and what the driver has given") {
  device_allocator::release_cached(kDevice);
  const AllocatorStats start = stats();
  device_allocator::reset_peak(kDevice);
  std::byte* a = take(1 << 20);
  std::byte* b = take(3 << 20);
  give(a);
  AllocatorStats now = stats();
  CHECK(now.current == start.current + MiB(3));
  CHECK(now.peak == start.current + MiB(4));
  CHECK(now.reserved == start.reserved + MiB(4));
  device_allocator::reset_peak(kDevice);
  CHECK(stats().peak == now.current);
  device_allocator::release_cached(kDevice);
  CHECK(stats().reserved == start.reserved + MiB(3));
  give(b);
  device_allocator::release_cached(kDevice);
  CHECK(stats().reserved == start.reserved);
}

TEST_CASE("when memory runs out the cache is given up first, then the error says who has what") {
  device_allocator::release_cached(kDevice);
  std::size_t unused = 0, total = 0;
  {
    const DeviceGuard current(kDevice);
    cuda_check(cudaMemGetInfo(&unused, &total));
  }
  std::byte* a = take(unused / 10 * 6);
  give(a);                               // remains in the cache ...
  std::byte* b = take(unused / 10 * 7);  // ... and must be released
  CHECK_THROWS_WITH(take(unused / 10 * 6), ContainsSubstring("cuda:0 is out of memory: "));
  CHECK_THROWS_WITH(take(unused / 10 * 6), ContainsSubstring(" MiB in "));
  CHECK_THROWS_AS(take(SIZE_MAX / 4), CudaError);
  std::byte* small = take(100);  // the allocator still works
  give(small);
  give(b);
  device_allocator::release_cached(kDevice);
}

TEST_CASE("without the cache every block goes to the driver and comes from it") {
  device_allocator::release_cached(kDevice);
  device_allocator::set_caching(false);
  const AllocatorStats before = stats();
  const Stream user = Stream::create(kDevice);
  for (int i = 0; i < 3; ++i) {
    std::byte* a = take(10'000);
    device_allocator::record_use(kDevice, a, user);
    give(a);
  }
  CHECK(stats().system_allocations == before.system_allocations + 3);
  CHECK(stats().reserved == before.reserved);
  device_allocator::set_caching(true);
}

TEST_CASE("threads on streams of their own never get the same bytes at once") {
  constexpr int kThreads = 4, kRounds = 40;
  std::vector<std::thread> threads;
  std::vector<std::string> faults(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t, &fault = faults[static_cast<std::size_t>(t)]] {
      const DeviceGuard device(kDevice);
      const Stream stream = Stream::create(kDevice);
      const StreamGuard guard(stream);
      for (int round = 0; round < kRounds && fault.empty(); ++round) {
        const std::size_t size = 500 + 700 * static_cast<std::size_t>((round * 7 + t) % 5);
        std::byte* block = take(size);
        const int mark = 16 * t + round % 16;
        cuda_check(cudaMemsetAsync(block, mark, size, stream.get()));
        std::vector<std::byte> seen(size);
        if (round % 3 == 0) {
          transfer(seen.data(), Device::cpu(), block, kDevice, Bytes(size));
          for (const std::byte b : seen)
            if (b != static_cast<std::byte>(mark)) fault = "thread " + std::to_string(t);
        }
        give(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) CHECK(fault == "");
}

TEST_CASE("a block that is not the allocator's is refused") {
  CHECK_THROWS_WITH(device_allocator::record_use(kDevice, nullptr, Stream::compute(kDevice)),
                    ContainsSubstring("not allocated here"));
  CHECK_THROWS_AS(device_allocator::allocate(Device::cuda(999), Bytes(1)), UsageError);
  CHECK_THROWS_AS(device_allocator::allocate(Device::cpu(), Bytes(1)), UsageError);
}

TEST_CASE("pinned blocks come back after the stream that uses them") {
  const Stream stream = Stream::create(kDevice);
  std::byte* first = nullptr;
  const std::uint64_t before = pinned_allocator::stats().system_allocations;
  {
    Gate gate(stream);
    {
      PinnedBlock block(KiB(100));
      first = block.data();
      block.release_after(stream);
    }
    const PinnedBlock other(KiB(100));
    CHECK(other.data() != first);
    CHECK(pinned_allocator::stats().system_allocations == before + 2);
  }
  const PinnedBlock again(KiB(100));
  CHECK(again.data() == first);
  CHECK(pinned_allocator::stats().system_allocations == before + 2);
  pinned_allocator::release_cached();
  CHECK(pinned_allocator::stats().reserved == Bytes(size_class_of(100 << 10).size));
}

// The next test case runs this one in a separate process, because it may block forever.
TEST_CASE("allocations beside a joint launch", "[.][gate_order]") {
  std::optional<JointLaunch> launching(std::in_place);
  std::byte* large = nullptr;
  std::thread on_device([&] { large = take(50'000'000); });  // waits for the gate
  std::thread pinned([] { const PinnedBlock block(Bytes(5'000'000)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::byte* const small = take(1000);
  { const PinnedBlock block(Bytes(1000)); }
  CHECK(large == nullptr);
  launching.reset();
  on_device.join();
  pinned.join();
  give(small);
  give(large);
}

TEST_CASE("a thread that launches can allocate while another waits for the driver") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto run = ringsmith::testing::run_program({self, "[gate_order]"}, 20);
  INFO(run.out << run.err);
  CHECK(!run.timed_out);
  CHECK(run.exit_code == 0);
}
