#include "runtime/parallel/usage_map.hpp"

#include <algorithm>

namespace ringsmith {

namespace {

constexpr std::size_t kBits = 64;
constexpr std::size_t kListed = 8;  // parameters named in a message; the rest is counted

}  // namespace

std::string describe_ranks(const std::vector<int>& ranks, int world) {
  if (world > 1 && static_cast<int>(ranks.size()) == world) return "every rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
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

void UsageMap::clear() { std::fill(mine_.begin(), mine_.end(), 0); }

void UsageMap::exchange(std::uint64_t step) {
  mine_[0] = step;
  // As bytes of no arithmetic: u64 is no dtype of a collective, i64 of the same width is.
  const auto as_i64 = [](std::span<std::uint64_t> s) {
    return comm::Buffer(reinterpret_cast<std::byte*>(s.data()), Elements(s.size()), DType::i64);
  };
  group_->all_gather(as_i64(mine_), as_i64(all_));
  for (int rank = 0; rank < group_->size(); ++rank)
    if (record(rank)[0] != step)
      throw CommError("ranks are at different steps: rank " + std::to_string(group_->rank()) +
                          " is at its forward " + std::to_string(step) + ", rank " +
                          std::to_string(rank) + " at its forward " +
                          std::to_string(record(rank)[0]) +
                          "; every rank must run forward and backward equally often (evaluate "
                          "under NoGradGuard)",
                      {.rank = group_->rank(), .peer = rank, .op = {}});
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

}  // namespace ringsmith
