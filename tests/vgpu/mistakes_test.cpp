// Every mistake of tests/vgpu/children/mistakes.cu ends in a message that names it, soon, and the
// right version beside it ends well.
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::run_program;

namespace {

const std::string kProgram = std::string(RINGSMITH_BINARY_DIR) + "/bin/vgpu_mistakes";

void caught(const std::string& mistake, const std::vector<std::string>& words) {
  const auto wrong = run_program({kProgram, mistake}, 60);
  CAPTURE(mistake, wrong.out, wrong.err);
  CHECK_FALSE(wrong.timed_out);
  CHECK(wrong.exit_code != 0);
  CHECK(wrong.exit_code < 128);  // it ended itself
  for (const std::string& w : words) CHECK_THAT(wrong.err, ContainsSubstring(w));
  const auto right = run_program({kProgram, mistake, "right"}, 60);
  CAPTURE(right.out, right.err);
  CHECK(right.exit_code == 0);
  CHECK(right.err.empty());
}

}  // namespace

TEST_CASE("an exception that leaves a host function") {
  caught("host_throws",
         {"an exception left a host function in stream 1 of device 0: no more cake"});
}

TEST_CASE("a host function that calls CUDA, and would wait for itself") {
  caught("host_waits",
         {"cudaStreamSynchronize is called in a host function in stream 1", "must not call CUDA"});
  caught("host_allocates", {"cudaMalloc is called in a host function in stream 1"});
}

#ifdef VGPU_TSAN_PROGRAMS  // the other sanitizers say it first, in their words
TEST_CASE("a misaligned vector, and a division by zero") {
  caught("misaligned", {"misaligned address", "kernel load_four", "mistakes.cu:"});
  caught("divide_by_zero", {"integer division by zero", "kernel divide", "mistakes.cu:"});
}
#endif

TEST_CASE("a copy that the host's memory has no room for") {
  caught("copy_into_nowhere", {"a copy runs over the end of host memory", "copy in stream 1"});
}

TEST_CASE("memory of another process after its handle was closed") {
  caught("use_after_close", {"use after cudaIpcCloseMemHandle", "kernel write_one"});
}
