// Tests vgpu with few addresses and with invalid settings.
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::run_program;

namespace {
const std::string kProgram = std::string(RINGSMITH_BINARY_DIR) + "/bin/vgpu_bugs";

// A program without mistakes: it allocates, copies, and runs a kernel.
auto run_with(const std::string& limits_and_variables) {
  return run_program({"sh", "-c", limits_and_variables + " " + kProgram + " out_of_bounds right"},
                     60);
}
}  // namespace

#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer reserves more addresses for itself
TEST_CASE("devices fit into the addresses that ulimit -v leaves, or say what helps") {
  const auto enough = run_with("ulimit -v 40000000;");  // KiB; otherwise a tebibyte each
  CAPTURE(enough.err);
  CHECK(enough.exit_code == 0);
  const auto few = run_with("ulimit -v 8000000;");
  CHECK(few.exit_code == 2);
  CHECK_THAT(few.err, ContainsSubstring("no address space for 8 devices: they need 16 GiB, and "
                                        "ulimit -v allows 7"));
  CHECK_THAT(few.err,
             ContainsSubstring("ulimit -v unlimited, fewer VGPU_DEVICES or less VGPU_MEMORY_MB"));
  const auto fewer_devices = run_with("ulimit -v 8000000; export VGPU_DEVICES=1;");
  CAPTURE(fewer_devices.err);
  CHECK(fewer_devices.exit_code == 0);
}
#endif

TEST_CASE("a page that cannot be is refused") {
  for (const char* const page : {"2", "128", "12", "4k"}) {
    const auto result = run_with("export VGPU_PAGE_KB=" + std::string(page) + ";");
    CAPTURE(page, result.err);
    CHECK(result.exit_code == 6);
    CHECK_THAT(result.err,
               ContainsSubstring("vgpu: VGPU_PAGE_KB=" + std::string(page) + ": give a "));
  }
}
