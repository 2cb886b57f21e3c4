// run_main() and printable() are not in error.cpp, because the labs compile error.cpp alone.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/core.h>
#include <new>
#include <system_error>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith {

namespace {

// Returns the length in bytes of the printable character at the start of the text, or 0.
std::size_t printable_at_start(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned char second = byte(1);
  if (first == 0xc2 && second < 0xa0) return 0;  // U+0080 to U+009F also control terminals
  const bool longer_than_needed =
      (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return longer_than_needed || no_character ? 0 : size;
}

int report(const char* program, const char* kind, const char* what, ExitCode code) {
  std::fprintf(stderr, "%s: %s: %s\n", program, kind, printable(what).c_str());
  std::fflush(stderr);
  return static_cast<int>(code);
}

// Returns `code`. If it is 0 but output was lost, reports that and returns ExitCode::internal.
int flushed(const char* program, int code) {
  const bool before = std::ferror(stdout) != 0;
  const bool now = std::fflush(stdout) != 0;
  if (code != 0 || (!before && !now)) return code;
  const std::string why = now ? std::strerror(errno) : "part of the output is lost";
  return report(program, "error", ("cannot write to standard output: " + why).c_str(),
                ExitCode::internal);
}

std::string out_of_memory() {
  const auto limit = address_space_limit();
  if (!limit) return "out of memory: use smaller sizes, or fewer processes on this machine";
  return fmt::format(
      "out of memory: this process is limited to {} MiB of address space; raise the "
      "limit (ulimit -v), or use smaller sizes",
      limit->value >> 20);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t size = printable_at_start(text);
    if (size > 0) {
      out += text.substr(0, size);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      size = 1;
    }
    text.remove_prefix(size);
  }
  return out;
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
    return report(program, "error", out_of_memory().c_str(), ExitCode::resources);
  } catch (const std::filesystem::filesystem_error& e) {
    const int number = e.code().value();
    const bool wrong_path =
        !is_lack(number) && number != ENOSPC && number != EDQUOT && number != EIO;
    // The library leaves the path out where it has opened a folder within a folder.
    const std::string path = e.path1().empty() ? "a folder" : "'" + e.path1().string() + "'";
    const std::string text = "cannot access " + path + ": " + reason_of(number) +
                             (wrong_path ? ": check the path and its permissions" : "");
    return report(program, "error", text.c_str(),
                  wrong_path        ? ExitCode::usage
                  : is_lack(number) ? ExitCode::resources
                                    : ExitCode::internal);
  } catch (const std::system_error& e) {  // e.g. a thread could not be started
    if (e.code() == std::errc::resource_unavailable_try_again)
      return report(program, "error",
                    "cannot start another thread: raise 'ulimit -u' or the container's pids "
                    "limit, or use fewer --threads or --workers",
                    ExitCode::resources);
    return report(program, "error", e.what(),
                  is_lack(e.code().value()) ? ExitCode::resources : ExitCode::internal);
  } catch (const std::exception& e) {
    return report(program, "internal error", e.what(), ExitCode::internal);
  }
}

}  // namespace ringsmith
