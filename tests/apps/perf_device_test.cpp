// Runs the measuring programs on device memory, with ranks as processes and as threads.
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::ProgramResult;
using ringsmith::testing::run_program;

namespace {

ProgramResult on_ranks(int processes, const std::string& program, const std::string& arguments,
                       const std::string& environment = "VGPU_DEVICES=8") {
  return run_program({"bash", "-c",
                      environment +
                          " ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" RINGSMITH_DEADLINE=60 "
                          "exec " RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh " +
                          std::to_string(processes) + " " RINGSMITH_BINARY_DIR "/bin/" + program +
                          " " + arguments},
                     90);
}

void check_right(const ProgramResult& r) {
  CAPTURE(r.out, r.err);
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.out, ContainsSubstring("# Out of bounds values : 0 OK"));
}

}  // namespace

TEST_CASE("every measuring program is right on device memory, by either engine", "[perf]") {
  const auto measure = [](const std::string& program, const std::string& options) {
    INFO(program << " " << options);
    check_right(
        on_ranks(3, program + "_perf", "-b 4 -e 300K -f 270 -n 2 --device cuda " + options));
  };
  for (const char* program : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                              "alltoall", "gather", "scatter", "sendrecv"})
    measure(program, "--memory user --engine stream");
  for (const char* program : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"})
    // The kernel engine leaves the calls that it does not support to the stream engine.
    measure(program, "--memory own --engine kernel");
}

TEST_CASE("all_reduce_perf is right on 2, 4 and 8 devices, for every type and operation",
          "[perf]") {
  for (const int world : {2, 4, 8})
    for (const char* engine : {"stream", "kernel"}) {
      INFO(world << " ranks, engine " << engine);
      check_right(
          on_ranks(world, "all_reduce_perf",
                   "-b 12 -e 48000 -f 4000 -n 1 -w 0 -d all -o all --device cuda --engine " +
                       std::string(engine)));
    }
}

TEST_CASE("ranks may be threads: --ranks-per-process", "[perf]") {
  const auto r =
      on_ranks(2, "all_reduce_perf", "-b 4 -e 64K -f 128 -n 2 --device cuda --ranks-per-process 2");
  check_right(r);
  CHECK_THAT(r.out, ContainsSubstring("# ranks 4 ") && ContainsSubstring("cuda:3") &&
                        ContainsSubstring("4 pairs of ranks by IPC handles, 2 pairs inside one "
                                          "process by pointers"));
  check_right(on_ranks(1, "all_reduce_perf", "-b 4K -n 2 --ranks-per-process 3"));
}

TEST_CASE("the table says which engine is used, and why not a better one", "[perf]") {
  const std::string one = "VGPU_DEVICES=1", arguments = "-b 4K -n 1 --device cuda";
  const auto apart = on_ranks(2, "all_reduce_perf", arguments);
  check_right(apart);
  CHECK_THAT(apart.out, ContainsSubstring("kernel engine: every rank has its own device"));
  const auto shared = on_ranks(2, "all_reduce_perf", arguments, one);
  check_right(shared);
  CHECK_THAT(shared.out,
             ContainsSubstring(
                 "stream engine; the kernel engine was refused: ranks 0 and 1 share a device"));
  const auto refused = on_ranks(2, "all_reduce_perf", arguments + " --engine kernel", one);
  CHECK(refused.exit_code == 6);
  CHECK_THAT(refused.err, ContainsSubstring("kernel engine: ranks 0 and 1 share a device"));
  const auto threads =
      on_ranks(1, "all_reduce_perf", arguments + " --ranks-per-process 2 --engine kernel", one);
  check_right(threads);
  CHECK_THAT(threads.out,
             ContainsSubstring("kernel engine, as requested: ranks 0 and 1 share a device "
                               "inside one process"));
}

TEST_CASE("devices that do not reach each other: by way of host memory, and the table says why",
          "[perf]") {
  const std::string arguments = "-b 4 -e 64K -f 128 -n 1 --device cuda", two = "VGPU_DEVICES=2 ";
  const auto none = on_ranks(2, "all_reduce_perf", arguments, two + "VGPU_PEERS=none");
  check_right(none);
  CHECK_THAT(none.out, ContainsSubstring("transport cuda_ipc was refused: rank 0 on cuda:0") &&
                           ContainsSubstring("no peer access between these devices") &&
                           ContainsSubstring("is copied through pinned host memory"));
  // The driver promises access and opens the handles, but bytes written to a peer are lost.
  const auto broken = on_ranks(3, "all_reduce_perf", arguments, "VGPU_DEVICES=3 VGPU_PEERS=broken");
  check_right(broken);
  CHECK_THAT(broken.out,
             ContainsSubstring("transport cuda_ipc was refused: a write of rank 1 (cuda:1) to "
                               "the memory of rank 0 (cuda:0) does not arrive"));
  for (const std::string peers : {"none", "broken"}) {
    const auto asked =
        on_ranks(2, "all_reduce_perf", arguments + " --engine kernel", two + "VGPU_PEERS=" + peers);
    CAPTURE(peers, asked.out, asked.err);
    CHECK(asked.exit_code == 6);
    CHECK_THAT(asked.err, ContainsSubstring("leave --engine out"));
  }
}

TEST_CASE("options of the device programs that make no sense are refused", "[perf]") {
  const auto engine = on_ranks(1, "all_reduce_perf", "-b 4 --engine kernel");
  CHECK(engine.exit_code == 6);
  CHECK_THAT(engine.err, ContainsSubstring("--engine kernel needs --device cuda"));
  const auto device = on_ranks(1, "all_reduce_perf", "-b 4 --device cuda:99");
  CHECK(device.exit_code == 6);
  CHECK_THAT(device.err, ContainsSubstring("cuda:99"));
  const auto calibrate = on_ranks(1, "all_reduce_perf", "--calibrate --device cuda");
  CHECK(calibrate.exit_code == 6);
}
