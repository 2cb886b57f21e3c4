// Tests ranks as threads: each runs, and none waits for a thread that has ended or did not start.
#include "runtime/job/threads.hpp"

#include <exception>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

using Errors = std::vector<std::exception_ptr>;
using Texts = std::vector<std::string>;

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "not an exception";
  }
}

}  // namespace

TEST_CASE("ranks as threads meet, and have the numbers of their process") {
  std::vector<Texts> got(3);
  const Errors errors = run_as_threads(
      std::make_shared<ThreadRendezvous>(3), [&](int thread, std::shared_ptr<Bootstrap> bootstrap) {
        const auto t = static_cast<std::size_t>(thread);
        got[t] = bootstrap->all_gather("record " + std::to_string(bootstrap->rank()));
        got[t].push_back(std::to_string(bootstrap->size()));
      });
  for (const auto& error : errors) CHECK(text_of(error) == "none");
  for (const Texts& texts : got) CHECK(texts == Texts{"record 0", "record 1", "record 2", "3"});
}

TEST_CASE("no thread waits for a thread that has ended, with or without an exception") {
  const int gone = GENERATE(0, 1, 2);
  const int kind = GENERATE(0, 1, 2);  // ends normally, throws an Error, throws an int
  const bool met = GENERATE(false, true);
  INFO("thread " << gone << " ends, kind " << kind << ", after a first exchange: " << met);
  const auto body = [&](int thread, std::shared_ptr<Bootstrap> bootstrap) {
    if (met) (void)bootstrap->all_gather("");
    if (thread != gone) (void)bootstrap->all_gather("");
    if (kind == 1) throw Error("the disk is full");
    if (kind == 2) throw 1;
  };
  const Errors errors = run_as_threads(std::make_shared<ThreadRendezvous>(3), body);
  const std::string lost = "a thread of this process ended before it joined the group";
  const std::string peer = ", peer " + std::to_string(gone) + "]";
  for (int t = 0; t < 3; ++t) {
    const std::string expected = t != gone   ? lost + " [rank " + std::to_string(t) + peer
                                 : kind == 0 ? "none"
                                 : kind == 1 ? "the disk is full"
                                             : "not an exception";
    CHECK(text_of(errors[static_cast<std::size_t>(t)]) == expected);
  }
}

TEST_CASE("threads that cannot be started are errors, and the other threads end") {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit two{2, 2};  // processes and threads of this user
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    if (setrlimit(RLIMIT_NPROC, &two) != 0) _exit(3);
    const auto body = [](int, std::shared_ptr<Bootstrap> bootstrap) {
      (void)bootstrap->all_gather("");
    };
    const Errors errors = run_as_threads(std::make_shared<ThreadRendezvous>(3), body);
    const std::string refused =
        std::make_error_code(std::errc::resource_unavailable_try_again).message();
    for (const auto& error : errors)
      if (!error) _exit(4);
    _exit(text_of(errors[2]) == refused ? 0 : 5);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
