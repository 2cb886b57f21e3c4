#include "labs/apps/common/number.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <string>

namespace ringsmith::apps {

namespace {

std::optional<double> read_real(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return {};
  return value;
}

std::optional<long long> read_whole(const std::string& text) {
  const std::size_t digits = text.rfind('-', 0) == 0 ? 1 : 0;
  if (text.size() > digits + 1 && text[digits] == '0') return {};  // octal, or hexadecimal?
  long long value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

// read: gives a number, or nothing; what: "a number above 0".
template <class Read, class Fits>
CLI::Validator must_be(Read read, Fits fits, const std::string& what) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = read(text);
        return value && fits(*value) ? std::string() : fmt::format("'{}' is not {}", text, what);
      },
      "");
}

}  // namespace

CLI::Validator whole(long long least, long long most) {
  return must_be(
      read_whole, [=](long long v) { return v >= least && v <= most; },
      fmt::format("a whole number from {} to {}", least, most));
}

CLI::Validator real(double least, double most) {
  return must_be(
      read_real, [=](double v) { return v >= least && v <= most; },
      fmt::format("a number from {} to {}", least, most));
}

CLI::Validator above_zero(double most) {
  return must_be(
      read_real, [=](double v) { return v > 0 && v <= most; },
      fmt::format("a number above 0, at most {}", most));
}

}  // namespace ringsmith::apps
