// Tests launches on machines without IPv4, without loopback, or with few open files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "tests/launch/ringrun.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

namespace {

const std::string kPerf = RINGSMITH_BINARY_DIR "/bin/all_reduce_perf -b 4 -e 4 -n 1 -w 0 -T 10";

// Runs the script in a network namespace whose only interface, the loopback, is down.
ProgramResult alone(const std::string& script) {
  return run_program({"unshare", "--net", "sh", "-c", script}, 60);
}

bool can_be_alone() {
  if (alone("ip link set lo up").exit_code == 0) return true;
  WARN("not run: no right to make network namespaces, or no ip (iproute2)");
  return false;
}

std::string launch(const std::string& options, const std::string& script) {
  return kRingrun + " --standalone --nproc-per-node 2 " + options + " -- sh -c '" + script + "'";
}

}  // namespace

TEST_CASE("what the store listens on is what the ranks call", "[surroundings]") {
  if (!can_be_alone()) return;
  const auto r =
      alone("ip link set lo up; " +
            launch("--bind ::1", "unset RINGSMITH_STORE_FD; echo at $MASTER_ADDR; " + kPerf));
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.out, ContainsSubstring("[1] at ::1\n"));
}

TEST_CASE("a machine with IPv6 alone", "[surroundings]") {
  if (!can_be_alone()) return;
  const std::string six = "ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ";
  const auto r = alone(six + launch("", "unset RINGSMITH_STORE_FD; echo at $MASTER_ADDR; " + kPerf +
                                            " --transport tcp"));
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.out, ContainsSubstring("[1] at ::1\n"));
}

TEST_CASE("a machine whose loopback is down: shared memory does, TCP says what is missing",
          "[surroundings]") {
  if (!can_be_alone()) return;
  auto r = alone(launch("", kPerf));
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  r = alone(launch("", "unset RINGSMITH_STORE_FD; exec " + kPerf + " -T 0.3"));
  INFO(r.out << r.err);
  CHECK(r.exit_code == 4);
  CHECK_THAT(r.err, ContainsSubstring("'ip link set lo up'"));
  const std::string bare =
      "ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ip addr del ::1/128 dev lo; ";
  r = alone(bare + launch("", "true"));
  INFO(r.out << r.err);
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err, ContainsSubstring("'ip link set lo up'") && ContainsSubstring("--bind"));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  r = alone(bare + kRingrun + " --bind 192.0.2.1 true");
  CHECK_THAT(r.err, ContainsSubstring("not an address of this host") &&
                        ContainsSubstring("with --bind (it has lo)"));
}

TEST_CASE("a master by a name that is 127.0.1.1 here is reached from elsewhere", "[surroundings]") {
  const TemporaryFolder folder;
  const std::string hosts = write_text(folder / "hosts", "127.0.1.1 mine\n127.0.0.1 localhost\n");
  // The other node resolves the name to another loopback address.
  const std::string others = write_text(folder / "others", "127.0.0.1 mine\n127.0.0.1 localhost\n");
  const auto with = [](const std::string& file) {
    return "unshare --mount sh -c 'mount --bind " + file + " /etc/hosts && exec \"$@\"' - ";
  };
  if (run_program({"sh", "-c", with(hosts) + "true"}).exit_code != 0) {
    WARN("not run: no right to make mount namespaces");
    return;
  }
  const std::string launch = kRingrun + " --nnodes 2 --master-addr mine --port-file " +
                             (folder / "port") + " --no-secret --join-timeout 30 ";
  const auto r = run_program({"sh", "-c",
                              with(others) + launch + "--node-rank 1 -- true & " + with(hosts) +
                                  launch + "--node-rank 0 -- true && wait $!"},
                             60);
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.err, ContainsSubstring("'mine' is 127.0.1.1 here, which no other node can reach: "
                                      "listening on all interfaces"));
}

TEST_CASE("a CPU quota counts in --nproc-per-node auto, and is named", "[surroundings]") {
  const std::string group = "/sys/fs/cgroup/cpu/ringsmith-test-" + std::to_string(getpid());
  std::error_code error;
  if (!std::filesystem::create_directory(group, error)) {
    WARN("not run: no right to make a control group of version 1 with a CPU quota");
    return;
  }
  std::ofstream(group + "/cpu.cfs_quota_us") << 100'000 << std::flush;
  const auto r = run_program({"sh", "-c",
                              "echo $$ > " + group + "/cgroup.procs && exec " + kRingrun +
                                  " --nproc-per-node auto -- sh -c 'echo of $WORLD_SIZE'"});
  rmdir(group.c_str());
  INFO(r.err);
  CHECK(r.exit_code == 0);
  CHECK(r.out == "[0] of 1\n");
  if (std::thread::hardware_concurrency() > 1)
    CHECK_THAT(r.err, ContainsSubstring("--nproc-per-node auto: 1, by the CPU quota of 1 on "));
}

TEST_CASE("too few open files are raised if they may be, and else refused with the number",
          "[surroundings]") {
  auto r =
      run_program({"bash", "-c", "ulimit -n 128; exec " + kRingrun + " --nproc-per-node 64 true"});
  INFO(r.err);
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err, ContainsSubstring("--nproc-per-node 64 needs 288 open files") &&
                        ContainsSubstring("limited to 128: raise it with 'ulimit -n 288'"));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  r = run_program(
      {"bash", "-c",
       "ulimit -S -n 40; exec " + kRingrun + " --nproc-per-node 16 -- sh -c 'ulimit -S -n'"});
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK(r.out.find("] 40\n") == std::string::npos);
  r = ringrun({"--nproc-per-node", "16", "--", "bash", "-c", "ulimit -n 20; exec " + kPerf});
  INFO(r.out << r.err);
  CHECK(r.exit_code == 7);
  CHECK_THAT(r.err, ContainsSubstring("a job of 16 ranks needs about ") &&
                        ContainsSubstring("limited to 20: raise it with 'ulimit -n 192'"));
}
