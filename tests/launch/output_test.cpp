// Lines of several ranks are kept whole, prefixed, written to files, and remembered.
#include "runtime/job/launch/output.hpp"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::launch;
using namespace ringsmith::testing;

namespace {

// An Output that shows nothing, and the write ends of one rank's streams.
struct Fixture {
  explicit Fixture(const std::string& folder = "", bool more_ranks = false)
      : output({.log_folder = folder, .show = false, .prefix = true, .more_ranks = more_ranks},
               closed.get()) {
    add_rank();
    output.start();
  }
  void add_rank() {
    int out_ends[2], err_ends[2];
    REQUIRE(pipe2(out_ends, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err_ends, O_CLOEXEC) == 0);
    output.add(7, Descriptor(out_ends[0]), Descriptor(err_ends[0]));
    out = Descriptor(out_ends[1]);
    err = Descriptor(err_ends[1]);
  }
  void end() {
    out = Descriptor();
    err = Descriptor();
    await();
  }
  void await() const {
    pollfd entry{output.done(), POLLIN, 0};
    REQUIRE(poll(&entry, 1, 30'000) == 1);
  }
  static void print(const Descriptor& to, const std::string& text) {
    REQUIRE(write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  Descriptor closed{eventfd(0, EFD_CLOEXEC)};
  Output output;
  Descriptor out, err;
};

}  // namespace

TEST_CASE("lines are put together from pieces, and the last needs no end", "[output]") {
  Fixture f;
  for (const char* piece : {"fir", "st\nsec", "ond\n\n", "last"}) Fixture::print(f.out, piece);
  f.end();
  CHECK(f.output.tail(7) == std::vector<std::string>{"first", "second", "", "last"});
  CHECK(f.output.tail(8).empty());
}

TEST_CASE("only the last lines are kept, and of a long one its beginning", "[output]") {
  Fixture f;
  for (int i = 0; i < 100; ++i) Fixture::print(f.out, "line " + std::to_string(i) + "\n");
  f.out = Descriptor();
  for (int i = 0; i < 20; ++i) Fixture::print(f.err, std::string(10'000, 'x'));
  f.end();
  const auto tail = f.output.tail(7);
  REQUIRE(tail.size() == Output::kTail);
  // The 200,000 bytes without an end of line count as one line, of which 1000 bytes are kept.
  CHECK(tail.back().size() == 1000);
}

TEST_CASE("a carriage return ends a piece of a line, and the last piece is remembered",
          "[output]") {
  Fixture f;
  for (const char* piece : {"10%\r", "20%\r100%", "\ndone\r", "\n", "a\rb\r"})
    Fixture::print(f.out, piece);
  f.end();
  CHECK(f.output.tail(7) == std::vector<std::string>{"100%", "done", "b"});
}

TEST_CASE("progress by carriage returns is shown at once, and long lines are shown whole",
          "[ringrun]") {
  auto r = ringrun_shell({}, "printf 'a\\rb\\r\\nc\\n'");
  CHECK(r.out == "[0] a\r[0] b\r\n[0] c\n");
  const std::string many = std::to_string(3'000'000);
  r = ringrun_shell({}, "head -c " + many + " /dev/zero | tr '\\0' x; echo; echo end");
  CHECK(r.out == "[0] " + std::string(3'000'000, 'x') + "\n[0] end\n");
  Background job({kRingrun, "--", "sh", "-c", "printf '50%%\\r'; exec sleep 60"});
  CHECK(eventually([&] { return job.output() == "[0] 50%\r"; }));
}

TEST_CASE("with a folder, each stream has its file, with every byte", "[output]") {
  const TemporaryFolder folder;
  Fixture f(folder.path);
  const std::string bytes("\0 binary \xff\n and no end", 23);
  Fixture::print(f.out, bytes);
  Fixture::print(f.err, "oops\n");
  f.end();
  CHECK(read_text(folder / "rank-7.out") == bytes);
  CHECK(read_text(folder / "rank-7.err") == "oops\n");
  CHECK_THAT(f.output.log_of(7), ContainsSubstring("rank-7.{out,err}"));
  CHECK_THROWS_AS(Fixture(folder.path), UsageError);  // the files exist
}

TEST_CASE("a screen on a full disk ends the job, and says why", "[ringrun]") {
  const auto r = run_program(
      {"sh", "-c", "exec " + kRingrun + " -- sh -c 'echo hello; exec sleep 60' > /dev/full"}, 60);
  INFO(r.err);
  CHECK(r.exit_code == 128 + SIGPIPE);
  CHECK(r.err ==
        "ringrun: error: cannot write to standard output: No space left on device; all ranks are "
        "ended\n");
}

TEST_CASE("what a full disk does not take is no success", "[ringrun]") {
  const auto r = run_program({"sh", "-c", "exec " + kRingrun + " --help > /dev/full"}, 60);
  CHECK(r.exit_code == 1);
  // Compares only the prefix. The reason is errno's text or, if the help is longer than stdio's
  // buffer, that output was lost.
  CHECK(r.err.rfind("ringrun: error: cannot write to standard output: ", 0) == 0);
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
}

TEST_CASE("a log that does not fit on its disk: the job goes on, and its exit code tells",
          "[ringrun]") {
  const TemporaryFolder folder;
  const auto r = run_program(
      {"sh", "-c",
       "trap '' XFSZ; ulimit -f 1; exec " + kRingrun + " --log-dir " + folder.path.string() +
           " -- sh -c 'head -c 100000 /dev/zero; echo last >&2'"},
      60);
  INFO(r.err);
  CHECK(r.exit_code == 1);
  CHECK(r.err == "ringrun: error: cannot write rank 0's file in --log-dir '" +
                     folder.path.string() + "': File too large; the rest of that output is lost\n");
  CHECK(read_text(folder / "rank-0.err") == "last\n");
}

TEST_CASE("a stream that a stray process holds open does not hold up the end", "[output]") {
  Fixture f;
  Fixture::print(f.out, "before");
  f.err = Descriptor();
  f.output.stop_at(Deadline::in(std::chrono::milliseconds(50)));
  f.await();
  CHECK(f.output.tail(7) == std::vector<std::string>{"before"});
}

TEST_CASE("a rank that is started again goes on in its files and its last lines", "[output]") {
  const TemporaryFolder folder;
  Fixture f(folder.path, true);
  for (int process = 0; process < 3; ++process) {
    if (process > 0) f.add_rank();
    Fixture::print(f.out, "process " + std::to_string(process) + "\n");
    f.out = Descriptor();
    f.err = Descriptor();
  }
  pollfd entry{f.output.done(), POLLIN, 0};
  CHECK(poll(&entry, 1, 50) == 0);  // more output may follow
  f.output.stop_at(Deadline::in(std::chrono::seconds(10)));
  f.await();
  const std::string all = read_text(folder / "rank-7.out");
  for (const char* line : {"process 0\n", "process 1\n", "process 2\n"})
    CHECK_THAT(all, ContainsSubstring(line));
  CHECK(f.output.tail(7).size() == 3);
}
