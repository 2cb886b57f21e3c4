#include <cstring>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/tensor/storage.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

TEST_CASE("a freed block serves the next request of its class without the system", "[allocator]") {
  std::byte* first = host_allocator::allocate(Bytes(100000));
  host_allocator::free(first, Bytes(100000));
  const auto before = host_allocator::stats();
  std::byte* again = host_allocator::allocate(Bytes(99000));
  REQUIRE(again == first);
  REQUIRE(host_allocator::stats().system_allocations == before.system_allocations);
  REQUIRE(host_allocator::stats().reserved == before.reserved);
  host_allocator::free(again, Bytes(99000));
}

TEST_CASE("classes hold their sizes, waste at most an eighth, and do not mix", "[allocator]") {
  std::size_t previous = 0;
  for (std::size_t size = 1; size < (std::size_t{1} << 22); size += 1 + size / 37) {
    const std::size_t c = host_allocator::class_size(Bytes(size)).value;
    REQUIRE(c >= size);
    REQUIRE(c % 64 == 0);
    REQUIRE(c >= previous);
    REQUIRE(c <= std::max<std::size_t>(size + 63, size + size / 8));
    REQUIRE(host_allocator::class_size(Bytes(c)).value == c);
    previous = c;
    // A block must return to the size class from which it was taken.
    std::byte* block = host_allocator::allocate(Bytes(size));
    std::memset(block, 1, size);
    host_allocator::free(block, Bytes(size));
    std::byte* same = host_allocator::allocate(Bytes(c));
    REQUIRE(same == block);
    std::memset(same, 2, c);
    host_allocator::free(same, Bytes(c));
  }
  host_allocator::release_cached();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process instead
TEST_CASE("a tensor beyond all memory is a lack of resources, and the allocator goes unharmed",
          "[allocator]") {
  try {
    (void)Tensor::empty({std::int64_t{1} << 46});  // 2^48 bytes: more than a process can address
    FAIL("2^48 bytes were allocated");
  } catch (const OutOfMemoryError& e) {
    CHECK(e.exit_code() == ExitCode::resources);
    CHECK_THAT(e.what(), ContainsSubstring("281474976710656 bytes left for a tensor"));
  }
  CHECK(Tensor::empty({4}).numel() == 4);
}
#endif

TEST_CASE("blocks are aligned to 64 bytes, and zero bytes are a block too", "[allocator]") {
  for (const std::size_t size : {0, 1, 63, 64, 65, 4095, 1 << 20, (4 << 20) + 1}) {
    std::byte* block = host_allocator::allocate(Bytes(size));
    REQUIRE(block != nullptr);
    REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    host_allocator::free(block, Bytes(size));
  }
}

TEST_CASE("current and peak count what was asked for", "[allocator]") {
  host_allocator::reset_peak();
  const Bytes base = host_allocator::stats().current;
  std::byte* a = host_allocator::allocate(Bytes(1000));
  std::byte* b = host_allocator::allocate(Bytes(2000));
  host_allocator::free(a, Bytes(1000));
  REQUIRE(host_allocator::stats().current == base + Bytes(2000));
  REQUIRE(host_allocator::stats().peak == base + Bytes(3000));
  host_allocator::free(b, Bytes(2000));
  host_allocator::reset_peak();
  REQUIRE(host_allocator::stats().peak == base);
  host_allocator::release_cached();
  REQUIRE(host_allocator::stats().current == base);
}

TEST_CASE("threads never get the same block at the same time", "[allocator]") {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int id = 1; id <= 4; ++id)
    threads.emplace_back([id, &wrong] {
      for (int i = 0; i < 2000; ++i) {
        const std::size_t size = 64 + static_cast<std::size_t>(i % 7) * 64;
        std::byte* block = host_allocator::allocate(Bytes(size));
        std::memset(block, id, size);
        for (std::size_t k = 0; k < size; ++k) wrong += block[k] != std::byte(id);
        host_allocator::free(block, Bytes(size));
      }
    });
  for (std::thread& t : threads) t.join();
  REQUIRE(wrong == 0);
}
