#include "runtime/base/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "runtime/base/process.hpp"

namespace ringsmith {

std::string Where::describe() const {
  std::string out;
  const auto add = [&out](const std::string& part) {
    if (!out.empty()) out += ", ";
    out += part;
  };
  if (rank >= 0) add("rank " + std::to_string(rank));
  if (peer >= 0) add("peer " + std::to_string(peer));
  if (!op.empty())
    add(op + (sequence >= 0 ? " #" + std::to_string(sequence) : "") +
        (site.empty() ? "" : " at " + site));
  if (step >= 0) add("step " + std::to_string(step));
  return out;
}

namespace {

std::string with_place(const std::string& message, const Where& where) {
  const std::string place = where.describe();
  return place.empty() ? message : message + " [" + place + "]";
}

int report(const char* program, const char* kind, const char* what, ExitCode code) {
  std::fprintf(stderr, "%s: %s: %s\n", program, kind, what);
  std::fflush(stderr);
  return static_cast<int>(code);
}

// What was printed may still wait in a buffer, and meet a full disk only now.
int flushed(const char* program, int code) {
  const bool before = std::ferror(stdout) != 0;
  const bool now = std::fflush(stdout) != 0;
  if (code != 0 || (!before && !now)) return code;
  const std::string why = now ? std::strerror(errno) : "a part of it is lost";
  return report(program, "error", ("cannot write to standard output: " + why).c_str(),
                ExitCode::internal);
}

}  // namespace

Error::Error(const std::string& message, Where where)
    : std::runtime_error(with_place(message, where)), where_(std::move(where)) {}

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

int run_main(const char* program, const std::function<int()>& body) noexcept {
  repair_inheritance();
  try {
    return flushed(program, body());
  } catch (const Error& e) {
    const bool preempted = e.exit_code() == ExitCode::preempted;
    if (preempted && *e.what() == '\0') return flushed(program, static_cast<int>(e.exit_code()));
    return report(program, preempted ? "stopped" : "error", e.what(), e.exit_code());
  } catch (const std::bad_alloc&) {
    return report(program, "error", "out of memory", ExitCode::resources);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again)  // of std::thread
      return report(program, "error",
                    "cannot start another thread: 'ulimit -u', or the control group's pids.max, "
                    "allows no more",
                    ExitCode::resources);
    if (is_lack(e.code().value())) return report(program, "error", e.what(), ExitCode::resources);
    return report(program, "internal error", e.what(), ExitCode::internal);
  } catch (const std::exception& e) {
    return report(program, "internal error", e.what(), ExitCode::internal);
  }
}

}  // namespace ringsmith
