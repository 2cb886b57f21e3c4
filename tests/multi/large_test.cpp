// Tests messages of more than 2 GiB, where a 32-bit count would overflow. A buffer consists of one
// MiB that is mapped repeatedly, and a separate tail.
//
//     address    [ period ][ period ][ period ] ... [ period ][ tail ]
//     memory     [ period ]<---- the same pages ----------'   [ tail ]
//
// The tail only arrives if every byte before it was counted.
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr std::size_t kPeriod = std::size_t{1} << 20, kPeriods = 2048, kTail = 8192;  // bytes

class Repeated {
 public:
  Repeated() {
    void* const room = mmap(nullptr, kPeriod * kPeriods + kTail, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(room != MAP_FAILED);
    data_ = static_cast<std::byte*>(room);
    const int pages = memfd_create("period", 0);
    REQUIRE(ftruncate(pages, kPeriod) == 0);
    for (std::size_t p = 0; p < kPeriods; ++p)
      REQUIRE(mmap(data_ + p * kPeriod, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   pages, 0) != MAP_FAILED);
    close(pages);
  }
  ~Repeated() { munmap(data_, kPeriod * kPeriods + kTail); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  static constexpr std::size_t kBytes = kPeriod * kPeriods + kTail - 3;
  [[nodiscard]] Buffer buffer() const { return {data_, Elements(kBytes), DType::u8}; }
  void fill(unsigned seed) {
    for (std::size_t i = 0; i < kPeriod; ++i) data_[i] = value(i, seed);
    for (std::size_t i = kPeriod * kPeriods; i < kBytes; ++i) data_[i] = value(i, seed + 1);
  }
  [[nodiscard]] std::size_t wrong(unsigned seed) const {
    std::size_t bad = 0;
    for (std::size_t i = 0; i < kPeriod; ++i) bad += data_[i] != value(i, seed) ? 1 : 0;
    for (std::size_t i = kPeriod * kPeriods; i < kBytes; ++i)
      bad += data_[i] != value(i, seed + 1) ? 1 : 0;
    for (std::size_t i = kBytes; i < kPeriod * kPeriods + kTail; ++i)
      bad += data_[i] != std::byte{0} ? 1 : 0;  // after the end
    return bad;
  }

 private:
  static std::byte value(std::size_t i, unsigned seed) {
    return static_cast<std::byte>((i * 2654435761U + seed * 97) >> 13 & 0xff);
  }
  std::byte* data_ = nullptr;
};

}  // namespace

TEST_CASE("a message of more than 2 GiB arrives whole", "[.large]") {
  ProcessGroup& g = group();
  Repeated data;
  const int last = g.size() - 1;
  if (g.rank() == 0) data.fill(1);
  if (g.rank() == 0 && last > 0) g.send(data.buffer(), last);
  if (g.rank() == last && last > 0) g.recv(data.buffer(), 0);
  if (g.rank() == 0 || g.rank() == last) CHECK(data.wrong(1) == 0);
}

TEST_CASE("a broadcast of more than 2 GiB arrives whole on every rank", "[.large]") {
  ProcessGroup& g = group();
  Repeated data;
  const int root = g.size() - 1;
  if (g.rank() == root) data.fill(7);
  g.broadcast(data.buffer(), root);
  CHECK(data.wrong(7) == 0);
}
