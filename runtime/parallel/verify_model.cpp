#include "runtime/parallel/verify_model.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <sstream>

#include "runtime/parallel/usage_map.hpp"

namespace ringsmith {

namespace {

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// texts[r] is the description of rank r: the first entry in which the ranks differ, and who has
// what there.
std::string explain(const std::vector<std::vector<std::string>>& texts) {
  const int world = static_cast<int>(texts.size());
  std::size_t longest = 0;
  for (const auto& lines : texts) longest = std::max(longest, lines.size());
  for (std::size_t entry = 0; entry < longest; ++entry) {
    std::vector<std::pair<std::string, std::vector<int>>> variants;  // in order of lowest rank
    for (int rank = 0; rank < world; ++rank) {
      const auto& lines = texts[static_cast<std::size_t>(rank)];
      const std::string line = entry < lines.size() ? lines[entry] : "missing";
      auto found = std::find_if(variants.begin(), variants.end(),
                                [&](const auto& variant) { return variant.first == line; });
      if (found == variants.end()) found = variants.insert(found, {line, {}});
      found->second.push_back(rank);
    }
    if (variants.size() == 1) continue;
    std::string text = "entry " + std::to_string(entry) + " is ";
    for (std::size_t v = 0; v < variants.size(); ++v)
      text += (v == 0 ? "" : ", but ") + variants[v].first + " on " +
              describe_ranks(variants[v].second, world);
    std::map<std::size_t, std::vector<int>> by_count;
    for (int rank = 0; rank < world; ++rank)
      by_count[texts[static_cast<std::size_t>(rank)].size()].push_back(rank);
    if (by_count.size() > 1) {
      text += " (";
      for (auto it = by_count.begin(); it != by_count.end(); ++it)
        text += (it == by_count.begin() ? "" : ", ") + std::to_string(it->first) + " entries on " +
                describe_ranks(it->second, world);
      text += ")";
    }
    return text;
  }
  return "their descriptions have equal entries but unequal digests";
}

}  // namespace

std::string describe_tensor(const std::string& kind, const std::string& name,
                            const Tensor& tensor) {
  return kind + " '" + name + "' " + std::string(name_of(tensor.dtype())) +
         to_string(tensor.sizes()) + (tensor.device().is_cuda() ? " on a GPU" : "");
}

void verify_same_model(comm::ProcessGroup& group, const std::vector<std::string>& lines) {
  std::string mine;
  for (const std::string& line : lines) mine += line + '\n';
  const auto world = static_cast<std::size_t>(group.size());

  const std::array<std::int64_t, 2> summary{static_cast<std::int64_t>(mine.size()),
                                            static_cast<std::int64_t>(fnv1a(mine))};
  std::vector<std::int64_t> summaries(2 * world);
  group.all_gather(std::span<const std::int64_t>(summary), std::span<std::int64_t>(summaries));
  std::size_t longest = 0;
  bool equal = true;
  for (std::size_t r = 0; r < world; ++r) {
    longest = std::max(longest, static_cast<std::size_t>(summaries[2 * r]));
    equal = equal && summaries[2 * r] == summaries[0] && summaries[2 * r + 1] == summaries[1];
  }
  if (equal) return;

  const std::size_t length = mine.size();
  mine.resize(longest);
  std::vector<std::uint8_t> padded(mine.begin(), mine.end());
  std::vector<std::uint8_t> all(longest * world);
  group.all_gather(std::span<const std::uint8_t>(padded), std::span<std::uint8_t>(all));
  mine.resize(length);
  std::vector<std::vector<std::string>> texts;
  for (std::size_t r = 0; r < world; ++r) {
    const auto* begin = all.data() + r * longest;
    texts.push_back(split_lines({begin, begin + summaries[2 * r]}));
  }
  throw UsageError("ranks do not hold the same model: " + explain(texts) +
                   "; build it alike on every rank");
}

}  // namespace ringsmith
