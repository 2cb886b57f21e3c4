#include "runtime/base/error.hpp"

#include <cstdio>
#include <new>

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

}  // namespace

Error::Error(const std::string& message, Where where)
    : std::runtime_error(with_place(message, where)), where_(std::move(where)) {}

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

int run_main(const char* program, const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const Error& e) {
    return report(program, "error", e.what(), e.exit_code());
  } catch (const std::bad_alloc&) {
    return report(program, "error", "out of memory", ExitCode::internal);
  } catch (const std::exception& e) {
    return report(program, "internal error", e.what(), ExitCode::internal);
  }
}

}  // namespace ringsmith
