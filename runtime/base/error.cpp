#include "runtime/base/error.hpp"

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

}  // namespace

Error::Error(const std::string& message, Where where)
    : std::runtime_error(with_place(message, where)), where_(std::move(where)) {}

void throw_too_large(std::size_t elements, std::size_t element_size) {
  throw UsageError("too large: " + std::to_string(elements) + " elements of " +
                   std::to_string(element_size) + " bytes");
}

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

}  // namespace ringsmith
