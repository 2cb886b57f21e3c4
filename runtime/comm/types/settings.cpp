#include "runtime/comm/types/settings.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::size_t kShown = 64;   // shown bytes of a value in a message
constexpr std::size_t kBefore = 24;  // how many of the shown bytes precede the first difference

std::optional<std::string> value_of(const Settings& settings, const std::string& name) {
  std::optional<std::string> out;
  for (const auto& [other, value] : settings)
    if (other == name) out = out ? *out + ", " + value : value;
  return out;
}

// Returns the different values of a name and the ranks that have each value, in the order of each
// value's lowest rank.
using SettingVariants = std::vector<std::pair<std::optional<std::string>, std::vector<int>>>;
SettingVariants variants_of(const std::map<int, Settings>& all, const std::string& name) {
  SettingVariants variants;
  for (const auto& [rank, settings] : all) {
    const auto value = value_of(settings, name);
    auto found = std::ranges::find(variants, value, &SettingVariants::value_type::first);
    if (found == variants.end()) found = variants.insert(found, {value, {}});
    found->second.push_back(rank);
  }
  return variants;
}

// Returns up to kShown bytes of the text, with control characters escaped. Starts kBefore bytes
// before the difference, or at the beginning if the difference is in the first kShown - kBefore.
std::string excerpt(const std::string& text, std::size_t difference) {
  const std::size_t begin = difference < kShown - kBefore ? 0 : difference - kBefore;
  std::string out = begin > 0 ? "..." : "";
  for (const char c : text.substr(begin, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (byte < ' ' || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  if (text.size() > begin + kShown) out += "...";
  return text.empty() || text.front() == ' ' || text.back() == ' ' ? "'" + out + "'" : out;
}

std::size_t common_prefix(const SettingVariants& variants) {
  std::optional<std::string> common;
  for (const auto& [value, ranks] : variants) {
    if (!value) continue;
    if (!common) common = value;
    common->erase(std::ranges::mismatch(*common, *value).in1, common->end());
  }
  return common ? common->size() : 0;
}

std::string describe_difference(const std::string& name, const SettingVariants& variants) {
  const std::size_t difference = common_prefix(variants);
  std::vector<std::string> parts;
  std::string missing;
  for (const auto& [value, ranks] : variants)
    if (value)
      parts.push_back(fmt::format("{}{} on {}", parts.empty() ? name + " is " : "",
                                  excerpt(*value, difference), list_ranks(ranks)));
    else
      missing = fmt::format(", but {} {} no {}", list_ranks(ranks),
                            ranks.size() == 1 ? "has" : "have", name);
  const std::string last = parts.back();
  parts.pop_back();
  return fmt::format("{}{}{}{}: use the same value on all ranks", fmt::join(parts, ", "),
                     parts.empty() ? "" : " and ", last, missing);
}

}  // namespace

std::string to_text(const Settings& settings) {
  std::vector<std::string> flat;
  for (const auto& [name, value] : settings) flat.insert(flat.end(), {name, value});
  return join_records(flat);
}

Settings parse_settings(const std::string& text) {
  const std::vector<std::string> flat = split_records(text);
  if (flat.size() % 2 != 0) throw CommError("corrupt settings: a name without a value");
  Settings out;
  for (std::size_t i = 0; i < flat.size(); i += 2) out.emplace_back(flat[i], flat[i + 1]);
  return out;
}

void require_equal(const std::map<int, Settings>& settings) {
  std::set<std::string> seen;
  for (const auto& [rank, of_rank] : settings)
    for (const auto& [name, value] : of_rank) {
      if (!seen.insert(name).second) continue;
      const SettingVariants variants = variants_of(settings, name);
      if (variants.size() > 1) throw UsageError(describe_difference(name, variants));
    }
}

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string join_records(const std::vector<std::string>& records) {
  std::string all;
  for (const std::string& record : records) all += std::to_string(record.size()) + ':' + record;
  return all;
}

std::vector<std::string> split_records(const std::string& all) {
  std::vector<std::string> records;
  const char* const end = all.data() + all.size();
  for (const char* at = all.data(); at < end;) {
    std::size_t length = 0;
    const auto [colon, error] = std::from_chars(at, end, length);
    if (error != std::errc() || colon == end || *colon != ':' ||
        length > static_cast<std::size_t>(end - colon - 1))
      throw CommError("corrupt bootstrap record '" + all + "'");
    records.emplace_back(colon + 1, length);
    at = colon + 1 + length;
  }
  return records;
}

}  // namespace ringsmith::comm
