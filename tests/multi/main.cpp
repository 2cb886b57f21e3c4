// Catch2 under mpirun: every rank runs the same cases, and rank 0 prints one report.
//
// `tests_multi --device cuda --engine stream [Catch2's arguments]` creates the group of all cases
// on devices, rank r on device r modulo their number; with `--transport tcp` the ranks use TCP;
// with `--ranks-per-node 2` pairs of ranks share memory and use TCP to the others.
//
// Rank 0 prints another rank's output only if that rank failed. A rank that is still running at the
// deadline reports its test case and ends the job.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mpi.h>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#define CATCH_CONFIG_RUNNER
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

#if __has_include(<catch2/reporters/catch_reporter_event_listener.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

// Open MPI unloads modules, whose leaks .ci/lsan.supp then cannot match by name. So leaks in
// MPI_Init are ignored, and leaks are checked before MPI_Finalize.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
static void start_mpi(int* argc, char*** argv) {
  __lsan_disable();
  MPI_Init(argc, argv);
  __lsan_enable();
}
static void check_for_leaks() { __lsan_do_leak_check(); }
#else
static void start_mpi(int* argc, char*** argv) { MPI_Init(argc, argv); }
static void check_for_leaks() {}
#endif

namespace {

// Seconds for all cases: 20 less than RINGSMITH_DEADLINE, at which mpirun.sh ends the ranks, but at
// least 10.
int deadline() {
  const char* const set = std::getenv("RINGSMITH_DEADLINE");
  return set == nullptr ? 200 : std::max(10, std::atoi(set) - 20);
}

int world_rank = 0;
std::atomic<const char*> current_case{"(none)"};
std::string case_name;

class NameListener : public Listener {
 public:
  using Listener::Listener;
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    case_name = info.name;
    current_case = case_name.c_str();
  }
};
CATCH_REGISTER_LISTENER(NameListener)

void watch(int limit) {
  for (int second = 0; second < limit; ++second) sleep(1);
  std::fprintf(stderr, "rank %d: still in test case '%s' after %d s\n", world_rank,
               current_case.load(), limit);
  std::fflush(stderr);
  _exit(124);
}

// Rank 0 prints the reports of the other ranks that failed.
void gather_reports(const std::string& report, int failures) {
  int world = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (world_rank != 0) {
    const int length = failures != 0 ? static_cast<int>(report.size()) : 0;
    MPI_Send(&length, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (length > 0) MPI_Send(report.data(), length, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    return;
  }
  for (int r = 1; r < world; ++r) {
    int length = 0;
    MPI_Recv(&length, 1, MPI_INT, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (length == 0) continue;
    std::string text(static_cast<std::size_t>(length), ' ');
    MPI_Recv(text.data(), length, MPI_CHAR, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    std::printf("---- rank %d of %d ----\n%s\n", r, world, text.c_str());
  }
  std::printf("world %d: ", world);
}

constexpr int kSkipped = 77;  // CMake's SKIP_RETURN_CODE

[[noreturn]] void leave(int code, const std::string& why) {
  if (world_rank == 0) std::fprintf(stderr, "tests_multi: %s\n", why.c_str());
  MPI_Finalize();
  std::exit(code);
}

// Skips the tests of the kernel engine unless every process has a device. Its kernels spin while
// they wait for each other, so processes on one device would hang.
void require_devices(const ringsmith::comm::GroupOptions& options) {
  if (options.device.is_cpu() || options.engine != ringsmith::comm::CudaEngine::kernel) return;
  int world = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (world > ringsmith::device_count())
    leave(kSkipped, "SKIPPED: the kernel engine between processes needs a device for each of " +
                        std::to_string(world) + " ranks, here are " +
                        std::to_string(ringsmith::device_count()));
}

// Removes our own options, which come first.
void take_options(int& argc, char**& argv) {
  ringsmith::comm::GroupOptions options;
  while (argc > 2) {
    const std::string option = argv[1], value = argv[2];
    if (option == "--device" && value == "cuda") {
      if (ringsmith::device_count() == 0)
        leave(static_cast<int>(ringsmith::ExitCode::usage),
              ringsmith::why_no_devices() +
                  ": run these tests where there is a device, or in the emulator's build (cmake "
                  "--preset release)");
      options.device = ringsmith::Device::cuda(world_rank % ringsmith::device_count());
    } else if (option == "--engine")
      options.engine = ringsmith::comm::parse_cuda_engine(value);
    else if (option == "--transport")
      options.transport = ringsmith::comm::parse_transport(value);
    else if (option == "--ranks-per-node")
      options.ranks_per_node = std::stoi(value);
    else if (option == "--interface")
      options.interface = value;
    else
      break;
    argv[2] = argv[0];
    argc -= 2;
    argv += 2;
  }
  require_devices(options);
  ringsmith::test::configure_group(options);
}

}  // namespace

int main(int argc, char** argv) {
  start_mpi(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  // deadline() reads the environment after Open MPI has changed it, before a test may change it.
  std::thread(watch, deadline()).detach();
  take_options(argc, argv);
  std::ostringstream report;
  if (world_rank == 0)
    for (const std::string& line : ringsmith::test::group().describe_transport())
      std::printf("%s\n", line.c_str());
  auto* const terminal = std::cout.rdbuf();
  if (world_rank != 0) std::cout.rdbuf(report.rdbuf());
  int failures = Catch::Session().run(argc, argv);
  std::cout.rdbuf(terminal);
  ringsmith::test::forget_group();
  gather_reports(report.str(), failures);
  int anywhere = 0;
  MPI_Allreduce(&failures, &anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (world_rank == 0) std::printf("%s\n", anywhere == 0 ? "all ranks passed" : "FAILED");
  check_for_leaks();
  MPI_Finalize();
  return anywhere;
}
