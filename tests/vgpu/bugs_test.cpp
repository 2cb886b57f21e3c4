// Every planted bug of tests/vgpu/children/bugs.cu must end with a message that names it, and the
// correct version must succeed. Races run under ThreadSanitizer, all other bugs in the plain build.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <utility>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::ProgramResult;
using ringsmith::testing::run_program;

namespace {

const std::string kPrograms = std::string(RINGSMITH_BINARY_DIR) + "/bin/";
const std::string kSource = std::string(RINGSMITH_SOURCE_DIR) + "/tests/vgpu/children/bugs.cu";

// "bugs.cu:27": the line that is marked "the bug: name".
std::string line_of(const std::string& name) {
  std::ifstream source(kSource);
  std::string line;
  for (int n = 1; std::getline(source, line); ++n)
    if (line.find("the bug: " + name) != std::string::npos) return "bugs.cu:" + std::to_string(n);
  FAIL("no line is marked 'the bug: " << name << "'");
  return "";
}

bool use_keys = true;  // false: as on a processor without keys
std::string guard;     // VGPU_GUARD, if a test sets it

ProgramResult run(const std::string& program, const std::string& bug, bool right, int deadline_ms) {
  std::vector<std::string> command = {"env",
                                      "VGPU_DEADLINE_MS=" + std::to_string(deadline_ms),
                                      std::string("VGPU_PROTECTION_KEYS=") + (use_keys ? "1" : "0"),
                                      "VGPU_GUARD=" + guard,
                                      kPrograms + program,
                                      bug};
  if (right) command.emplace_back("right");
  return run_program(command, 60);
}

constexpr int kRightDeadline_ms = 30'000;

// wrong_ms: the emulator's deadline for the wrong version.
void caught(const std::string& program, const std::string& bug,
            const std::vector<std::string>& words, int wrong_ms) {
  const auto wrong = run(program, bug, false, wrong_ms);
  CAPTURE(program, bug, wrong.out, wrong.err);
  CHECK_FALSE(wrong.timed_out);
  CHECK(wrong.exit_code != 0);
  CHECK(wrong.exit_code < 128);  // not killed by a signal
  for (const std::string& w : words) CHECK_THAT(wrong.err, ContainsSubstring(w));
  const auto right = run(program, bug, true, kRightDeadline_ms);
  CAPTURE(right.out, right.err);
  CHECK(right.exit_code == 0);
  CHECK(right.err.empty());
}

void caught_by_emulator(const std::string& bug, const std::vector<std::string>& words) {
  caught("vgpu_bugs", bug, words, 1000);
}

void caught_as_race(const std::string& bug, const std::vector<std::string>& words) {
#ifdef VGPU_TSAN_PROGRAMS
  std::vector<std::string> all = {"ThreadSanitizer: data race", line_of(bug)};
  all.insert(all.end(), words.begin(), words.end());
  // No race waits for the deadline, so the deadline can be long. It must not end the kernel while
  // ThreadSanitizer writes a report.
  caught("vgpu_bugs_tsan", bug, all, kRightDeadline_ms);
#else
  WARN(bug << ": not run, this build has no ThreadSanitizer programs");
  (void)words;
#endif
}

}  // namespace

TEST_CASE("bug 1: a missing __syncthreads is a race, and a wrong result every time", "[tsan]") {
  caught_as_race("missing_barrier", {"shift"});
  for (int seed = 1; seed <= 20; ++seed) {
    const auto result = run_program(
        {"env", "VGPU_SEED=" + std::to_string(seed), kPrograms + "vgpu_bugs", "missing_barrier"});
    CHECK(result.exit_code == 1);
  }
}

TEST_CASE("bug 2: a missing wait for an event between two streams is a race", "[tsan]") {
  caught_as_race("missing_event", {"produce", "consume"});
}

TEST_CASE("bug 3: a read on the host before the copy was waited for is a race", "[tsan]") {
  caught_as_race("early_read", {"memcpy", "main thread"});
}

TEST_CASE("bug 4: out of bounds") {
  caught_by_emulator(
      "out_of_bounds",
      {"out of bounds", "write to 0 bytes past the end of device 0's memory #1 (4096 bytes)",
       "kernel write_all", "block (1,0,0), thread (0,0,0)", line_of("out_of_bounds")});
  caught_by_emulator(
      "slightly_out_of_bounds",
      {"out of bounds", "device 0's memory #1 (4000 bytes) + 4000", "kernel write_all"});
}

TEST_CASE("bug 5: use after free") {
  caught_by_emulator("use_after_free", {"use after free", "kernel write_all", "has been freed",
                                        line_of("out_of_bounds")});
}

TEST_CASE("bug 6: the offset that belongs to an IPC handle is ignored") {
  caught_by_emulator("ignored_offset", {"was the offset ignored?", "kernel write_all"});
}

TEST_CASE("bug 7: a handle is opened in its exporter") {
  caught_by_emulator("own_handle", {"cudaIpcOpenMemHandle", "exported by this process"});
}

TEST_CASE("bug 8: a flag or a fence before the data, and a flag that orders nothing", "[tsan]") {
  caught_as_race("flag_first", {"hand_over"});
  caught_as_race("relaxed_flag", {"hand_over"});
  caught_as_race("early_fence", {"hand_over"});
}

TEST_CASE("bug 9: a barrier in a divergent branch") {
  caught_by_emulator(
      "divergent_barrier",
      {"barrier divergence", "kernel half_waits", "32 threads (32-63) left the kernel",
       "32 threads (0-31) wait in __syncthreads()", line_of("divergent_barrier")});
  caught_by_emulator("different_barriers", {"barrier divergence", "different __syncthreads()",
                                            line_of("different_barriers")});
}

TEST_CASE("bug 10: a kernel that never ends") {
  caught_by_emulator("endless", {"spins forever", "kernel wait_for", line_of("endless"),
                                 "read 3 from device 0's memory #1 (4 bytes) + 0"});
  caught_by_emulator("plain_endless",
                     {"runs forever", "kernel plain_wait", line_of("plain_endless")});
}

TEST_CASE("a report of a fault is written to its end, though that takes longer than the deadline",
          "[waits]") {
  std::string tools = std::filesystem::temp_directory_path() / "vgpu-XXXXXX";
  REQUIRE(::mkdtemp(tools.data()) != nullptr);
  const std::string name = tools + "/addr2line", path = std::getenv("PATH");
  std::ofstream(name) << "#!/bin/sh\nsleep 4\nPATH=" << path << " exec addr2line \"$@\"\n";
  REQUIRE(::chmod(name.c_str(), 0755) == 0);
  for (const auto& [bug, words] : {std::pair("out_of_bounds", "out of bounds\n"),
                                   std::pair("plain_endless", "runs forever")}) {
    const auto result = run_program({"env", "VGPU_DEADLINE_MS=1000", "PATH=" + tools + ":" + path,
                                     kPrograms + "vgpu_bugs", bug});
    CAPTURE(bug, result.err);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, ContainsSubstring(words));
    CHECK_THAT(result.err, ContainsSubstring(line_of(bug)));
  }
  std::filesystem::remove_all(tools);
}

TEST_CASE("host access to device memory, and access to a device that is no peer") {
  use_keys = GENERATE(true, false);  // if false, or without keys, pages guard the memory
  guard = "pages";
  caught_by_emulator("host_access", {"host access to device memory", line_of("host_access")});
  caught_by_emulator("no_peer_access",
                     {"cudaDeviceEnablePeerAccess was not called", "device 1's memory"});
  caught_by_emulator("out_of_bounds", {"out of bounds", line_of("out_of_bounds")});
  caught_by_emulator("use_after_free", {"use after free", line_of("out_of_bounds")});
  use_keys = true;
  guard = "";
}

TEST_CASE("without protection keys nothing guards device memory, unless pages are asked for") {
  for (const char* const wanted : {"", "keys", "none"}) {
    use_keys = false;
    guard = wanted;
    const auto result = run("vgpu_bugs", "host_access", false, kRightDeadline_ms);
    CAPTURE(wanted, result.err);
    CHECK(result.exit_code <= 1);  // it ran to its end, with an arbitrary value
    CHECK(result.err.empty());
    use_keys = true;
  }
  guard = "everything";
  const auto refused = run("vgpu_bugs", "host_access", false, kRightDeadline_ms);
  CHECK(refused.exit_code == 6);
  CHECK(refused.err == "vgpu: VGPU_GUARD=everything: give keys, pages or none\n");
  guard = "";
}
