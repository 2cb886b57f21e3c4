// What the kernel says about this process.
#include "runtime/base/process.hpp"

#include <vector>

#include "tests/support/catch.hpp"

using namespace ringsmith;

TEST_CASE("peak memory sees an allocation that was touched and freed", "[memory]") {
  const Bytes before = resident();
  {
    const std::vector<char> block(64 << 20, 1);
    const volatile char* touched = block.data();  // else clang removes the allocation
    REQUIRE(*touched == 1);
  }
  REQUIRE(peak_resident() >= before + MiB(60));
}
