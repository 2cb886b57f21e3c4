#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/base/units.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

// Returns the line that run_main() prints for an exception, and its exit code.
std::pair<std::string, int> last_line(const std::function<int()>& body) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const Descriptor before(dup(STDERR_FILENO));
  REQUIRE(dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
  const int code = run_main("p", body);
  dup2(before.get(), STDERR_FILENO);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return {text, code};
}

}  // namespace

TEST_CASE("a timeout without a limit never passes, and can be added to") {
  const auto centuries = std::chrono::hours(300 * 365 * 24);
  for (const milliseconds timeout : {milliseconds::max(), milliseconds(centuries)}) {
    CHECK(checked_timeout("t", timeout) == kLongestTimeout);
    const Deadline deadline = Deadline::in(timeout);
    CHECK_FALSE(deadline.passed());
    CHECK(deadline.left() > std::chrono::hours(99 * 365 * 24));
    CHECK(deadline.poll_ms() == 3'600'000);
    CHECK(deadline.at_most(timeout).left() > std::chrono::hours(99 * 365 * 24));
    CHECK(deadline.at_most(10s).left() <= 10s);
    CHECK_FALSE(Deadline::in(limited(timeout) + 10s).passed());
    CHECK_FALSE(Deadline::in(2 * limited(timeout) + 45s).passed());
    CHECK(std::chrono::nanoseconds(limited(timeout)).count() > 0);
  }
  CHECK(checked_timeout("t", 1ms) == 1ms);
  for (const milliseconds timeout : {0ms, -1ms, milliseconds::min()}) {
    CHECK_THROWS_WITH(checked_timeout("the wait", timeout),
                      "the wait must be above 0, got " + std::to_string(timeout.count()) +
                          " ms; milliseconds::max() waits without a limit");
    CHECK(Deadline::in(timeout).passed());
    CHECK(Deadline::in(timeout).left() == 0ms);
  }
}

TEST_CASE("more bytes than can be are refused, not counted modulo 2^64") {
  const std::size_t most = ~std::size_t{0};
  CHECK(bytes_of(Elements(most / 4), 4).value == most - 3);
  CHECK(bytes_of(Elements(most), 1).value == most);
  CHECK(bytes_of(Elements(0), most).value == 0);
  for (const std::size_t count : {std::size_t{1} << 62, most / 4 + 1, most})
    CHECK_THROWS_WITH(bytes_of(Elements(count), 4),
                      "too large: " + std::to_string(count) + " elements of 4 bytes");
}

TEST_CASE("a program's error is one line, whatever its text holds, and names what was refused") {
  CHECK(last_line([]() -> int { throw UsageError("file '\x1b[2J\nx' is odd"); }) ==
        std::pair<std::string, int>("p: error: file '\\x1b[2J\\x0ax' is odd\n", 6));
  const auto closed = [](const char* path) -> int {
    throw std::filesystem::filesystem_error("x", path, {EACCES, std::generic_category()});
  };
  CHECK(last_line([&] { return closed("/a\n"); }) ==
        std::pair<std::string, int>("p: error: cannot access '/a\\x0a': Permission denied: check "
                                    "the path and its permissions\n",
                                    6));
  const auto thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  const auto [text, code] = last_line([&]() -> int { throw std::system_error(thread); });
  CHECK(code == static_cast<int>(ExitCode::resources));
  CHECK_THAT(text, ContainsSubstring("p: error: cannot start another thread: raise 'ulimit"));
  CHECK_THAT(last_line([]() -> int { throw std::logic_error("odd"); }).first,
             ContainsSubstring("p: internal error: odd"));
}
