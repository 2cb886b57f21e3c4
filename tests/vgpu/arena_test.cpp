// Tests an arena that has used up its addresses. It is small, because using up a tebibyte would
// take days.
#include "kernels/vgpu/arena.hpp"

#include <cstring>
#include <set>
#include <sys/mman.h>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

constexpr std::size_t kMiB = 1 << 20;

struct Addresses {
  explicit Addresses(std::size_t n)
      : bytes(n),
        base(static_cast<std::byte*>(
            ::mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() { ::munmap(base, bytes); }
  std::size_t bytes;
  std::byte* base;
};

}  // namespace

TEST_CASE("an arena uses addresses again only when all were used, and never a living one") {
  Addresses space(32 * kMiB);
  vgpu::Arena arena(0, space.base, space.bytes, 16 * kMiB, -1);
  void* const kept_large = arena.allocate(3 * kMiB);  // a block of 4 MiB
  void* const kept_small = arena.allocate(100);       // a block of 2 MiB
  REQUIRE(kept_large != nullptr);
  REQUIRE(kept_small != nullptr);
  std::memset(kept_large, 1, 3 * kMiB);
  std::memset(kept_small, 2, 100);

  std::set<void*> fresh;
  for (int n = 0; n < 6; ++n) {  // with the two kept blocks, 30 of 32 MiB are used
    void* const p = arena.allocate(3 * kMiB);
    REQUIRE(p != nullptr);
    CHECK(fresh.insert(p).second);
    REQUIRE(arena.free(p));
    CHECK(arena.was_freed(p));
  }
  for (int n = 0; n < 20; ++n) {
    auto* const p = static_cast<std::byte*>(arena.allocate(3 * kMiB));
    REQUIRE(p != nullptr);
    CHECK(fresh.count(p) == 1);
    CHECK_FALSE(arena.was_freed(p));
    CHECK(arena.block_lives(arena.offset(p)));
    CHECK(p[0] == std::byte{0xff});  // fresh memory, without the old contents
    std::memset(p, 3, 3 * kMiB);
    arena.check_patterns([] { return "now"; });
    REQUIRE(arena.free(p));
  }
  const auto all = [](const void* at, std::size_t bytes, int value) {
    const std::vector<std::byte> wanted(bytes, std::byte(value));
    return std::memcmp(at, wanted.data(), bytes) == 0;
  };
  CHECK(all(kept_large, 3 * kMiB, 1));
  CHECK(all(kept_small, 100, 2));
}

TEST_CASE("an arena whose shared block died gives small memory from elsewhere") {
  Addresses space(4 * kMiB);
  vgpu::Arena arena(0, space.base, space.bytes, 4 * kMiB, -1);
  for (int n = 0; n < 500; ++n) {
    void* const p = arena.allocate(1000);
    void* const q = arena.allocate(1000);
    REQUIRE(p != nullptr);
    REQUIRE(q != nullptr);
    REQUIRE(p != q);
    std::memset(q, 1, 1000);
    REQUIRE(arena.free(p));
    REQUIRE(arena.free(q));
  }
}

TEST_CASE("an arena without addresses for a large piece says so, and goes on") {
  Addresses space(8 * kMiB);
  vgpu::Arena arena(0, space.base, space.bytes, 8 * kMiB, -1);
  std::vector<void*> kept;
  for (int n = 0; n < 4; ++n) kept.push_back(arena.allocate(kMiB + 1));
  for (void* p : kept) REQUIRE(p != nullptr);
  REQUIRE(arena.free(kept[1]));
  REQUIRE(arena.free(kept[3]));  // two gaps of 2 MiB
  CHECK(arena.allocate(3 * kMiB) == nullptr);
  void* const again = arena.allocate(kMiB + 1);
  CHECK(again == kept[1]);
  CHECK(arena.allocate(kMiB + 1) == kept[3]);
  CHECK(arena.allocate(kMiB + 1) == nullptr);
}

TEST_CASE("an arena forgets the freed memory that was freed first, not the lowest") {
  Addresses space(1024 * kMiB);
  vgpu::Arena arena(0, space.base, space.bytes, kMiB, -1);
  void* const lowest = arena.allocate(100);
  std::vector<void*> freed;
  for (std::size_t n = 0; n < vgpu::Arena::kDeadKept; ++n) {
    freed.push_back(arena.allocate(100));
    REQUIRE(freed.back() != nullptr);
    REQUIRE(arena.free(freed.back()));
  }
  REQUIRE(arena.free(lowest));
  CHECK(arena.was_freed(lowest));
  CHECK_THAT(arena.describe(lowest),
             ContainsSubstring("memory #1 (100 bytes) + 0, which has been"));
  CHECK_FALSE(arena.was_freed(freed.front()));
  CHECK(arena.was_freed(freed.back()));
}
