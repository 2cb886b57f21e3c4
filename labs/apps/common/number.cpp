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

}  // namespace

CLI::Validator whole(long long least, long long most) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = read_whole(text);
        if (value && *value >= least && *value <= most) return std::string();
        return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
      },
      "");
}

CLI::Validator real(double least, double most) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = read_real(text);
        if (value && *value >= least && *value <= most) return std::string();
        return fmt::format("'{}' is not a number from {} to {}", text, least, most);
      },
      "");
}

CLI::Validator above_zero(double most) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = read_real(text);
        if (value && *value > 0 && *value <= most) return std::string();
        return fmt::format("'{}' is not a number above 0, at most {}", text, most);
      },
      "");
}

}  // namespace ringsmith::apps
