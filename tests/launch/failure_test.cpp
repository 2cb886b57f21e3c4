// Which failure was the cause of the others, and how it is told.
#include "runtime/launch/failure.hpp"

#include <csignal>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::launch;

namespace {

Failure exited(int rank, int code, std::int64_t when) {
  Failure f;
  f.rank = rank;
  f.end = {false, false, code};
  f.when_us = when;
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

TEST_CASE("ends are described, and become exit codes as in a shell", "[failure]") {
  CHECK(End{false, false, 7}.describe() == "exit code 7");
  CHECK(End{false, false, 7}.exit_code() == 7);
  CHECK(End{true, false, SIGKILL}.describe() == "signal 9 (SIGKILL)");
  CHECK(End{true, true, SIGSEGV}.describe() == "signal 11 (SIGSEGV), core dumped");
  CHECK(End{true, true, SIGSEGV}.exit_code() == 139);
  CHECK(End{false, false, 0}.success());
  CHECK_FALSE(End{true, false, 0}.success());
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
