// Tests which failure is reported as the cause of the others, and how.
#include "runtime/job/launch/failure.hpp"

#include <csignal>

#include "runtime/base/error.hpp"
#include "tests/launch/ringrun.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::launch;
using namespace ringsmith::testing;

namespace {

Failure exited(int rank, int code, std::int64_t when) {
  Failure f;
  f.rank = rank;
  f.end = {false, false, code};
  f.when_us = when;
  return f;
}
Failure blaming(int rank, int whom, std::int64_t when) {
  Failure f = exited(rank, 4, when);
  f.blames = whom;
  return f;
}
Failure killed(int rank, int signal, std::int64_t when) {
  Failure f = exited(rank, signal, when);
  f.end.signalled = true;
  return f;
}

}  // namespace

TEST_CASE("the root cause: no witness before a culprit, else the first", "[failure]") {
  struct Row {
    const char* what;
    std::vector<Failure> failures;
    int rank;
  };
  const std::vector<Row> rows = {
      {"one alone", {exited(4, 1, 10)}, 4},
      {"the first of two", {exited(0, 1, 20), exited(1, 1, 10)}, 1},
      {"a signal, though its witness was seen first",
       {exited(0, 3, 10), killed(2, SIGSEGV, 11)},
       2},
      {"an exit, though its witnesses were seen first",
       {exited(0, 3, 10), exited(1, 4, 11), exited(2, 1, 12)},
       2},
      {"witnesses alone: the first", {exited(1, 3, 12), exited(0, 4, 11)}, 0},
      {"witnesses alone: whom the first blames",
       {blaming(0, 2, 10), blaming(1, 2, 11), exited(2, 3, 12)},
       2},
      {"witnesses that blame each other: one of them", {blaming(0, 1, 10), blaming(1, 0, 11)}, 0},
      {"whom they blame has not failed: the first", {blaming(1, 5, 11), blaming(0, 5, 10)}, 0},
      {"a lack of files, though its witnesses were seen first",
       {blaming(0, 1, 10), exited(2, 7, 12)},
       2},
      {"two signals: the first", {killed(3, SIGKILL, 7), killed(1, SIGKILL, 8)}, 3},
      {"the same instant: the lowest rank", {exited(3, 1, 7), exited(1, 1, 7)}, 1},
      {"signals named 3 and 4 are no witnesses", {killed(0, SIGQUIT, 9), exited(1, 1, 10)}, 0},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const auto first = root_cause(row.failures);
    REQUIRE(first.has_value());
    CHECK(first->rank == row.rank);
  }
  CHECK_FALSE(root_cause({}).has_value());
}

TEST_CASE("whom the last words blame", "[failure]") {
  const auto pid_in = [](const std::vector<std::string>& tail) {
    const auto found = blamed_in(tail, 10);
    return found ? found->pid : 0;
  };
  CHECK(pid_in({"p: error: rank 2 (pid 30 on a) is gone: its process has died [rank 0, peer 2]"}) ==
        30);
  CHECK(
      pid_in({"waited 5 ms for rank 1. To blame: rank 3 (pid 40 on a), which has made no call yet: "
              "its process sleeps. Where all ranks are: rank 0 in barrier() #0"}) == 40);
  CHECK(
      pid_in({"rank 0 (pid 10 on a) has waited 5 ms for the others: rank 3 (pid 41 on b) came"}) ==
      41);
  CHECK(pid_in({"rank 3 (pid 41 on b) is gone", "epoch 3"}) == 41);
  CHECK(pid_in({"rank 0 (pid 10 on a)", "rank 3 never arrived"}) == 0);
  CHECK(pid_in({}) == 0);
  CHECK(blamed_in({"rank 2 (pid 30 on a) is gone"}, 10)->rank == 2);
  CHECK(blamed_in({"rank 0 (pid 30 on a) is gone [in the group of ranks 1, 3]"}, 10)->rank == -1);
  CHECK_THAT(describe(blaming(0, 3, 7), 1),
             ContainsSubstring("rank 0 gave up because of rank 3: exit code 4\n"));
}

TEST_CASE("a rank that may have too few files is the one that the report begins with",
          "[ringrun]") {
  const std::string perf = RINGSMITH_BINARY_DIR "/bin/all_reduce_perf -b 8 -e 8 -n 1 -w 0 -T 5";
  int lacking = 0;
  for (const std::string transport : {"shm", "tcp"})
    for (int files = 4; files < 15; ++files) {
      const auto r = ringrun_shell({"--nproc-per-node", "3"},
                                   "[ $RANK != 1 ] || ulimit -n " + std::to_string(files) +
                                       "; exec " + perf + " --transport " + transport);
      INFO(files << " files, " << transport << "\n" << r.out << r.err);
      if (r.exit_code == 0 || r.exit_code == 127) continue;  // 127: the program cannot be loaded
      ++lacking;
      CHECK(r.exit_code == 7);
      CHECK_THAT(r.err, ContainsSubstring("ringrun: rank 1 failed first: exit code 7\n"));
    }
  CHECK(lacking > 2);
}

TEST_CASE("a rank that is stopped is the one because of which the others give up", "[ringrun]") {
  const auto r =
      ringrun_shell({"--nproc-per-node", "3"},
                    "[ $RANK != 1 ] || { (sleep 1; kill -STOP $$) & }; exec " RINGSMITH_BINARY_DIR
                    "/bin/all_reduce_perf -b 8 -e 8 -n 100000000 -T 2");
  INFO(r.out << r.err);
  CHECK(r.exit_code == 4);
  CHECK_THAT(r.err, ContainsSubstring(" gave up because of rank 1: exit code 4\n"));
}

TEST_CASE("ends are described, and become exit codes as in a shell", "[failure]") {
  CHECK(ExitStatus{false, false, 7}.describe() == "exit code 7");
  CHECK(ExitStatus{false, false, 7}.exit_code() == 7);
  CHECK(ExitStatus{true, false, SIGKILL}.describe() == "signal 9 (SIGKILL)");
  CHECK(ExitStatus{true, true, SIGSEGV}.describe() == "signal 11 (SIGSEGV), core dumped");
  CHECK(ExitStatus{true, true, SIGSEGV}.exit_code() == 139);
  CHECK(ExitStatus{false, false, 0}.success());
  CHECK_FALSE(ExitStatus{true, false, 0}.success());
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(1000) == "SIG1000");
}

TEST_CASE("a failure goes through the store unchanged, and garbage is refused", "[failure]") {
  Failure f = killed(5, SIGABRT, 1'700'000'000'123'456);
  f.local_rank = 1;
  f.node = 1;
  f.host = "host b";
  f.pid = 4711;
  f.end.core_dumped = true;
  f.after_us = 1'500'000;
  f.tail = {"first", "", "last \xff line"};
  f.log = "/logs/rank-5";
  f.hint = "somebody did it";
  const Failure g = Failure::decode(f.encode());
  CHECK(g.encode() == f.encode());
  CHECK(g.tail == f.tail);
  CHECK(g.end.describe() == "signal 6 (SIGABRT), core dumped");
  const std::string text = describe(g, 2);
  for (const char* part : {"rank 5 failed first: signal 6 (SIGABRT)", "1.5 s after the start",
                           "node 1, host b, local rank 1, pid 4711", "/logs/rank-5",
                           "why    somebody did it", "\n    first"})
    CHECK_THAT(text, ContainsSubstring(part));
  CHECK_THAT(describe(exited(0, 1, 0), 1), ContainsSubstring("it printed nothing"));
  for (const std::string& bad : {std::string(), std::string("x"), f.encode().substr(0, 60)})
    CHECK_THROWS_AS(Failure::decode(bad), CommError);
}
