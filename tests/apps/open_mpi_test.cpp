// Only ranks started by mpirun need Open MPI. Other programs also run where Open MPI is absent or
// broken.
#include <dlfcn.h>

#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

namespace {

const std::string kBin = RINGSMITH_BINARY_DIR "/bin/";

// Runs the command with `file` as its libmpi.
ProgramResult with_libmpi(const std::string& file, const std::vector<std::string>& command) {
  const TemporaryFolder folder;
  for (const char* name : {"libmpi.so.40", "libmpi.so"})
    std::filesystem::copy_file(file, folder / name);
  std::vector<std::string> argv{"env", "LD_LIBRARY_PATH=" + folder.path.string()};
  argv.insert(argv.end(), command.begin(), command.end());
  return run_program(argv, 60);
}

const std::vector<std::string> kAlone{kBin + "all_reduce_perf", "-n", "1", "-w", "0"};
const std::vector<std::string> kByRingrun{kBin + "ringrun",
                                          "--standalone",
                                          "--nproc-per-node",
                                          "2",
                                          "--",
                                          kBin + "all_reduce_perf",
                                          "-n",
                                          "1",
                                          "-w",
                                          "0"};

void require_refusal(const ProgramResult& r, const std::vector<std::string>& words) {
  INFO(r.err);
  CHECK(r.exit_code == 6);
  const auto lines = error_lines("all_reduce_perf", r.err);
  REQUIRE(lines.size() == 1);
  for (const std::string& word : words) CHECK_THAT(lines[0], ContainsSubstring(word));
}

}  // namespace

TEST_CASE("without Open MPI only mpirun's ranks do not run", "[programs]") {
  const TemporaryFolder folder;
  const std::string broken = write_text(folder / "broken", "no library");
  for (const auto& command : {kAlone, kByRingrun}) {
    const auto r = with_libmpi(broken, command);
    INFO(r.err);
    CHECK(r.exit_code == 0);
    CHECK_THAT(r.out, ContainsSubstring("# all_reduce_perf, ringsmith"));
  }
  require_refusal(with_libmpi(broken, {kAlone[0], "--bootstrap", "mpi"}),
                  {"Open MPI", "cannot be opened", "libmpi.so", "openmpi-bin",
                   "start the program with ringrun"});
}

TEST_CASE("an MPI that is not Open MPI is refused", "[programs]") {
  // libm stands for any library without Open MPI's symbols.
  Dl_info libm{};
  REQUIRE(dladdr(dlsym(RTLD_DEFAULT, "fmod"), &libm) != 0);
  require_refusal(
      with_libmpi(libm.dli_fname, {kAlone[0], "--bootstrap", "mpi"}),
      {"but this machine's libmpi.so.40 is another MPI", "start the program with ringrun"});
}
