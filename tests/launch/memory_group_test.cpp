// Tests whether a control group's files show that the kernel killed a rank at a memory limit.
#include <filesystem>

#include "runtime/job/launch/failure.hpp"
#include "tests/launch/ringrun.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::launch;
using namespace ringsmith::testing;

namespace {

namespace fs = std::filesystem;

// A control group below this process's own; not valid if this user may not create it.
class Group {
 public:
  explicit Group(const std::string& limit)
      : path_(memory_group_folder(read_text("/proc/self/cgroup")) + "/ringsmith-test-" +
              std::to_string(getpid())) {
    std::error_code error;
    if (!fs::create_directory(path_, error)) return;
    valid_ = put("memory.max", limit) || put("memory.limit_in_bytes", limit);
    // Without this limit, the kernel would first swap.
    if (!put("memory.swap.max", "0")) (void)put("memory.memsw.limit_in_bytes", limit);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() { rmdir(path_.c_str()); }
  [[nodiscard]] bool valid() const { return valid_; }
  [[nodiscard]] std::string members() const { return path_ + "/cgroup.procs"; }

 private:
  [[nodiscard]] bool put(const std::string& file, const std::string& text) const {
    if (!fs::exists(path_ + "/" + file)) return false;
    std::ofstream out(path_ + "/" + file);
    out << text << std::flush;
    return out.good();
  }
  std::string path_;
  bool valid_ = false;
};

}  // namespace

TEST_CASE("the folder that counts a process's memory", "[memory]") {
  CHECK(memory_group_folder("0::/user.slice/job\n", "/cg") == "/cg/user.slice/job");
  CHECK(memory_group_folder("3:cpu,cpuacct:/a\n2:pids,memory:/b/c\n1:name=systemd:/d\n", "/cg") ==
        "/cg/memory/b/c");
  CHECK(memory_group_folder("4:memory:/b\n0::/\n", "/cg") == "/cg/memory/b");
  CHECK(memory_group_folder("1:name=systemd:/d\n", "/cg").empty());
  CHECK(memory_group_folder("", "/cg").empty());
  CHECK(memory_group_folder("no such line\n:\n", "/cg").empty());
}

TEST_CASE("the kernel's kills are told from those of others, one by one", "[memory]") {
  for (const bool second : {true, false}) {
    const TemporaryFolder folder;
    const auto count = [&](int kills) {
      const std::string n = std::to_string(kills) + "\n";
      if (second)
        write_text(folder / "memory.events", "low 0\nhigh 0\nmax 31\noom 5\noom_kill " + n);
      else
        write_text(folder / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill " + n);
    };
    const std::string limit = folder / (second ? "memory.max" : "memory.limit_in_bytes");
    count(3);
    write_text(limit, "2147483648\n");
    MemoryGroup group(folder.path.string());
    CHECK_THAT(group.why_killed(), ContainsSubstring("see 'dmesg'"));
    count(5);
    for (int killed = 0; killed < 2; ++killed)
      CHECK_THAT(group.why_killed(), ContainsSubstring("the kernel killed it for lack of memory") &&
                                         ContainsSubstring("2 GiB"));
    CHECK_THAT(group.why_killed(), ContainsSubstring("killed by another process"));
    count(6);
    write_text(limit, second ? "max\n" : "9223372036854771712\n");
    CHECK_THAT(group.why_killed(), ContainsSubstring("or one above it"));
  }
  const TemporaryFolder empty;
  CHECK_THAT(MemoryGroup(empty.path.string()).why_killed(), ContainsSubstring("see 'dmesg'"));
}

TEST_CASE("a rank that outgrows its control group is told as such", "[memory]") {
  const Group group("67108864");
  if (!group.valid()) {
    WARN("not run: no right to make control groups for memory");
    return;
  }
  // tail buffers a line that never ends, up to 1 GB.
  const auto r =
      run_program({"sh", "-c",
                   "echo $$ > " + group.members() + " && exec " + kRingrun +
                       " --nproc-per-node 1 -- sh -c 'ulimit -v 1000000; exec tail /dev/zero'"});
  INFO(r.out << r.err);
  CHECK(r.exit_code == 137);
  CHECK_THAT(r.err, ContainsSubstring("rank 0 failed first: signal 9 (SIGKILL)") &&
                        ContainsSubstring("the kernel killed it for lack of memory") &&
                        ContainsSubstring("64 MiB"));
}

TEST_CASE("a rank that somebody killed: the report says where to look", "[memory]") {
  const auto r = ringrun_shell({}, "kill -KILL $$");
  CHECK(r.exit_code == 137);
  CHECK_THAT(r.err, ContainsSubstring("  why    killed by another process"));
}
