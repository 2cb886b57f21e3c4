// Tests memory and events between processes, in separate programs (tests/vgpu/children/ipc.cu),
// because a process that has used CUDA cannot fork.
#include <dirent.h>
#include <fstream>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::run_program;

namespace {

const std::string kProgram = std::string(RINGSMITH_BINARY_DIR) + "/bin/vgpu_ipc";

void passes(const char* scenario) {
  const auto result = run_program({kProgram, scenario}, 60);
  CAPTURE(scenario, result.out, result.err);
  CHECK_FALSE(result.timed_out);
  CHECK(result.exit_code == 0);
}

bool any_name_contains(const char* folder, const std::string& part) {
  bool found = false;
  if (DIR* dir = opendir(folder)) {
    while (const dirent* entry = readdir(dir))
      found |= std::string(entry->d_name).find(part) != std::string::npos;
    closedir(dir);
  }
  return found;
}

bool any_socket(const std::string& name) {
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("another process writes into device memory, on another device and on the same one") {
  passes("other_device");
  passes("same_device");
}

TEST_CASE("large memory begins at its block's base") { passes("large"); }

TEST_CASE("a handle opened in its exporter is refused, and the message says so") {
  const auto result = run_program({kProgram, "own_handle"}, 60);
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring("exported by this process, which cannot open it"));
}

TEST_CASE("freed memory is not opened") { passes("after_free"); }

TEST_CASE("an event of one process is waited for in another") { passes("events"); }

TEST_CASE("another user who has the handle imports nothing, nor is imported from") {
  if (geteuid() != 0) {
    WARN("NOT RUN: 'another user who has the handle' needs root, to become another user");
    return;
  }
  passes("stranger_imports");
  passes("stranger_exports");
}

TEST_CASE("a guessed handle opens nothing, and silent connections delay nobody") {
  passes("guessed");
}

TEST_CASE("kill -9 of an exporter leaves nothing behind") {
  const auto result = run_program({kProgram, "killed"}, 60);  // prints the pid that it kills
  CAPTURE(result.out, result.err);
  CHECK(result.exit_code == 0);
  REQUIRE(std::stoi(result.out) > 0);
  CHECK_FALSE(any_socket("@vgpu." + std::to_string(std::stoi(result.out)) + "."));
  CHECK_FALSE(any_name_contains("/dev/shm", "vgpu"));
}
