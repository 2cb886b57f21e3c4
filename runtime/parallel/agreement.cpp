#include "runtime/parallel/agreement.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <sstream>

namespace ringsmith {

namespace {

constexpr std::size_t kBits = 64;
constexpr std::size_t kListed = 8;  // parameters named in a message; the others are only counted
constexpr std::uint64_t kFault = std::uint64_t{1} << 63;  // flag in the step's word

// The distinct texts, each with the ranks that have it, ordered by the lowest rank.
using Variants = std::vector<std::pair<std::string, std::vector<int>>>;
Variants variants_of(const std::vector<std::string>& texts) {
  Variants variants;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    auto found = std::ranges::find(variants, texts[rank], &Variants::value_type::first);
    if (found == variants.end()) found = variants.insert(found, {texts[rank], {}});
    found->second.push_back(static_cast<int>(rank));
  }
  return variants;
}

// Collective. Returns every rank's text.
std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& mine) {
  const auto world = static_cast<std::size_t>(group.size());
  const std::array<std::int64_t, 1> size{static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> sizes(world);
  group.all_gather(std::span<const std::int64_t>(size), std::span<std::int64_t>(sizes));
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(sizes));
  std::vector<std::uint8_t> padded(mine.begin(), mine.end()), all(longest * world);
  padded.resize(longest);
  group.all_gather(std::span<const std::uint8_t>(padded), std::span<std::uint8_t>(all));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < world; ++r)
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + r * longest,
                       static_cast<std::size_t>(sizes[r]));
  return texts;
}

// Collective. Returns every rank's text, or an empty vector if all are equal.
std::vector<std::string> gather_unequal(comm::ProcessGroup& group, const std::string& mine) {
  const auto world = static_cast<std::size_t>(group.size());
  const std::array<std::int64_t, 2> summary{static_cast<std::int64_t>(mine.size()),
                                            static_cast<std::int64_t>(comm::fnv1a(mine))};
  std::vector<std::int64_t> summaries(2 * world);
  group.all_gather(std::span<const std::int64_t>(summary), std::span<std::int64_t>(summaries));
  bool equal = true;
  for (std::size_t r = 0; r < world; ++r)
    equal = equal && summaries[2 * r] == summaries[0] && summaries[2 * r + 1] == summaries[1];
  return equal ? std::vector<std::string>() : gather_texts(group, mine);
}

}  // namespace

std::string describe_ranks(const std::vector<int>& ranks, int world) {
  if (world > 1 && static_cast<int>(ranks.size()) == world) return "every rank";
  return comm::list_ranks(ranks);
}

void require_agreement(comm::ProcessGroup& group, const comm::Settings& mine) {
  std::map<int, comm::Settings> settings;
  for (const std::string& text : gather_unequal(group, comm::to_text(mine)))
    settings.emplace(static_cast<int>(settings.size()), comm::parse_settings(text));
  comm::require_equal(settings);
}

comm::Settings settings_of(const Module& model) {
  comm::Settings out;
  const auto add = [&](const char* kind, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors)
      out.emplace_back(fmt::format("{} '{}'", kind, name),
                       std::string(name_of(tensor.dtype())) + to_string(tensor.sizes()));
  };
  add("parameter", model.named_parameters());
  add("buffer", model.named_buffers());
  return out;
}

UsageMap::UsageMap(std::size_t parameters, std::shared_ptr<comm::ProcessGroup> group)
    : parameters_(parameters),
      words_(static_cast<std::ptrdiff_t>(1 + (parameters + kBits - 1) / kBits)),
      group_(std::move(group)) {
  const auto words = static_cast<std::size_t>(words_);
  const auto world = static_cast<std::size_t>(group_->size());
  mine_memory_ = group_->allocate(Bytes(words * sizeof(std::uint64_t)));
  all_memory_ = group_->allocate(Bytes(world * words * sizeof(std::uint64_t)));
  mine_ = mine_memory_->as<std::uint64_t>().first(words);
  all_ = all_memory_->as<std::uint64_t>().first(world * words);
}

void UsageMap::mark(int parameter) {
  const auto p = static_cast<std::size_t>(parameter);
  mine_[1 + p / kBits] |= std::uint64_t{1} << (p % kBits);
}

bool UsageMap::marked(int parameter) const {
  const auto p = static_cast<std::size_t>(parameter);
  return (mine_[1 + p / kBits] >> (p % kBits) & 1) != 0;
}

void UsageMap::clear() { std::ranges::fill(mine_, 0); }

void UsageMap::exchange(std::uint64_t step, const std::string& fault) {
  mine_[0] = step | (fault.empty() ? 0 : kFault);
  // Collectives do not support u64. i64 works equally well, because the words are only copied.
  const auto as_i64 = [](std::span<std::uint64_t> s) {
    return comm::Buffer(reinterpret_cast<std::byte*>(s.data()), Elements(s.size()), DType::i64);
  };
  group_->all_gather(as_i64(mine_), as_i64(all_));
  bool faults = false;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const std::uint64_t theirs = record(rank)[0] & ~kFault;
    if (theirs != step)
      throw CommError(fmt::format("ranks are at different steps: rank {} is at its forward {}, "
                                  "rank {} at its forward {}; every rank must run forward and "
                                  "backward the same number of times (evaluate under NoGradGuard)",
                                  group_->rank(), step, rank, theirs),
                      {.rank = group_->rank(), .peer = rank, .op = {}});
    faults = faults || theirs != record(rank)[0];
  }
  if (!faults) return;
  std::string all;
  for (const auto& [text, ranks] : variants_of(gather_texts(*group_, fault)))
    if (!text.empty())
      all += (all.empty() ? "on " : "; on ") + describe_ranks(ranks, group_->size()) + ": " + text;
  throw UsageError(all);
}

bool UsageMap::used_on(int rank, int parameter) const {
  const auto p = static_cast<std::size_t>(parameter);
  return (record(rank)[1 + p / kBits] >> (p % kBits) & 1) != 0;
}

bool UsageMap::used_anywhere(int parameter) const {
  for (int rank = 0; rank < group_->size(); ++rank)
    if (used_on(rank, parameter)) return true;
  return false;
}

bool UsageMap::used_everywhere() const {
  for (int rank = 0; rank < group_->size(); ++rank)
    for (std::size_t p = 0; p < parameters_; p += kBits) {
      const std::size_t bits = std::min(kBits, parameters_ - p);
      const std::uint64_t full = ~std::uint64_t{0} >> (kBits - bits);
      if (record(rank)[1 + p / kBits] != full) return false;
    }
  return true;
}

std::string UsageMap::describe_unused(std::span<const std::string> names) const {
  std::string list;
  std::size_t count = 0;
  for (std::size_t p = 0; p < parameters_; ++p) {
    std::vector<int> lacking;
    for (int rank = 0; rank < group_->size(); ++rank)
      if (!used_on(rank, static_cast<int>(p))) lacking.push_back(rank);
    if (lacking.empty()) continue;
    if (++count > kListed) continue;
    list += (count == 1 ? "'" : ", '") + names[p] + "' (on " +
            describe_ranks(lacking, group_->size()) + ")";
  }
  if (count > kListed) list += " and " + std::to_string(count - kListed) + " more";
  return std::to_string(count) + (count == 1 ? " parameter has" : " parameters have") +
         " no gradient: " + list;
}

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Describes the first entry that differs between ranks. texts[r]: the lines of rank r.
std::string explain(const std::vector<std::vector<std::string>>& texts) {
  const int world = static_cast<int>(texts.size());
  std::size_t longest = 0;
  for (const auto& lines : texts) longest = std::max(longest, lines.size());
  for (std::size_t entry = 0; entry < longest; ++entry) {
    std::vector<std::string> entries;
    for (const auto& lines : texts)
      entries.push_back(entry < lines.size() ? lines[entry] : "missing");
    const Variants variants = variants_of(entries);
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
  std::vector<std::vector<std::string>> texts;
  for (const std::string& text : gather_unequal(group, mine)) texts.push_back(split_lines(text));
  if (texts.empty()) return;
  throw UsageError("ranks do not hold the same model: " + explain(texts) +
                   "; build the same model on every rank");
}

std::function<bool(bool)> any_rank(std::shared_ptr<comm::ProcessGroup> group) {
  return [group = std::move(group)](bool here) {
    std::array<std::int32_t, 1> any{here ? 1 : 0};
    group->all_reduce(std::span<std::int32_t>(any), comm::ReduceOp::max);
    return any[0] != 0;
  };
}

}  // namespace ringsmith
