// Every mistake of tests/vgpu/children/mistakes.cu must end with a message that names it, and the
// correct version must succeed.
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::run_program;

namespace {

const std::string kProgram = std::string(RINGSMITH_BINARY_DIR) + "/bin/vgpu_mistakes";

void caught(const std::string& mistake, const std::vector<std::string>& words,
            const std::vector<std::string>& environment = {}) {
  const auto run = [&](std::vector<std::string> command) {
    command.insert(command.begin(), environment.begin(), environment.end());
    command.insert(command.begin(), "env");
    return run_program(command, 60);
  };
  const auto wrong = run({kProgram, mistake});
  CAPTURE(mistake, wrong.out, wrong.err);
  CHECK_FALSE(wrong.timed_out);
  CHECK(wrong.exit_code != 0);
  CHECK(wrong.exit_code < 128);  // not killed by a signal
  for (const std::string& w : words) CHECK_THAT(wrong.err, ContainsSubstring(w));
  const auto right = run({kProgram, mistake, "right"});
  CAPTURE(right.out, right.err);
  CHECK(right.exit_code == 0);
  CHECK(right.err.empty());
}

}  // namespace

TEST_CASE("an exception that leaves a host function") {
  caught("host_throws",
         {"an exception escaped from a host function in stream 1 of device 0: no more cake"});
}

TEST_CASE("a host function that calls CUDA, and would wait for itself") {
  caught("host_waits",
         {"cudaStreamSynchronize is called in a host function in stream 1", "must not call CUDA"});
  caught("host_allocates", {"cudaMalloc is called in a host function in stream 1"});
}

#ifdef VGPU_TSAN_PROGRAMS  // the other sanitizers report it first, in their own words
TEST_CASE("a misaligned vector, and a division by zero") {
  caught("misaligned", {"misaligned address", "kernel load_four", "mistakes.cu:"});
  caught("divide_by_zero", {"integer division by zero", "kernel divide", "mistakes.cu:"});
}
#endif

TEST_CASE("a copy that the host's memory has no room for") {
  caught("copy_into_nowhere", {"a copy runs past the end of host memory", "copy in stream 1"});
}

TEST_CASE("memory of another process after its handle was closed") {
  caught("use_after_close", {"use after cudaIpcCloseMemHandle", "kernel write_one"});
}

TEST_CASE("a driver that waits: an allocation, and a first launch, while a kernel waits") {
  const std::vector<std::string> waits = {"VGPU_DRIVER_WAITS=1", "VGPU_DEADLINE_MS=1500"};
  const std::vector<std::string> words = {"a kernel spins forever", "kernel wait_for"};
  caught("allocation_beside_waiting", words, waits);
  caught("first_launch_beside_waiting", words, waits);
  // With kernels loaded in advance, no launch loads a kernel. Without VGPU_DRIVER_WAITS=1, nothing
  // waits.
  for (const std::string setting : {"VGPU_DRIVER_WAITS=1", "VGPU_DRIVER_WAITS=0"}) {
    const auto eager = run_program(
        {"env", "CUDA_MODULE_LOADING=EAGER", setting, kProgram, "first_launch_beside_waiting"}, 60);
    CAPTURE(setting, eager.out, eager.err);
    CHECK(eager.exit_code == 0);
  }
  CHECK(run_program({kProgram, "allocation_beside_waiting"}, 60).exit_code == 0);
}
