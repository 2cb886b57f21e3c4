// Tests SIGTERM and SIGUSR1 while a StopRequest exists. tests/apps/preempt_test.cpp tests programs.
#include "runtime/parallel/stop_request.hpp"

#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

// Runs `body` in a child process. Returns the child's exit code, or 128 + signal.
template <class Body>
int end_of(Body body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a signal is a request once; a second one ends the process", "[stop_request]") {
  for (const int signal : StopRequest::kSignals) {
    CHECK(end_of([=] {
            ::signal(signal, SIG_DFL);
            const StopRequest stop;
            if (stop.here()) return 1;
            raise(signal);
            raise(signal);  // again, immediately: the same request from another source
            return stop.here() ? 2 : 3;
          }) == 2);
    CHECK(end_of([=] {
            ::signal(signal, SIG_DFL);
            const StopRequest stop;
            raise(signal);
            std::this_thread::sleep_for(StopRequest::kSameRequest + std::chrono::milliseconds(50));
            raise(signal);
            return 1;
          }) == 128 + signal);
    CHECK(end_of([=] {
            ::signal(signal, SIG_DFL);
            { const StopRequest stop; }
            raise(signal);
            return 1;
          }) == 128 + signal);
    CHECK(end_of([=] {
            ::signal(signal, SIG_DFL);
            {
              StopRequest stop;
              stop.work_is_done();
            }
            raise(signal);
            return 1;
          }) == 1);
    CHECK(end_of([=] {
            ::signal(signal, SIG_IGN);
            const StopRequest stop;
            raise(signal);
            return stop.here() ? 1 : 2;
          }) == 2);
  }
}

TEST_CASE("there is one StopRequest in a process, and a later one begins anew", "[stop_request]") {
  {
    const StopRequest stop;
    CHECK_THROWS_AS(StopRequest(), UsageError);
    raise(SIGUSR1);
    CHECK(stop.here());
  }
  CHECK_FALSE(StopRequest().here());
}
