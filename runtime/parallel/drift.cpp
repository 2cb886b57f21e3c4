#include "runtime/parallel/drift.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/core.h>

#include "runtime/parallel/agreement.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

// Bijective in the word and in the digest: a difference in a single word always changes the result.
std::uint64_t mixed(std::uint64_t digest, std::uint64_t word) {
  digest = (digest ^ word) * 0x9E3779B97F4A7C15;
  return digest ^ digest >> 32;
}

std::uint64_t digest_of(const Tensor& t) {
  const Tensor host = t.cpu().contiguous();
  const std::byte* data = data_of(host);
  const std::size_t size = size_in_bytes(host).value;
  std::uint64_t digest = size, word = 0;
  std::size_t at = 0;
  for (; at + sizeof word <= size; at += sizeof word) {
    std::memcpy(&word, data + at, sizeof word);
    digest = mixed(digest, word);
  }
  word = 0;
  std::memcpy(&word, data + at, size - at);
  return mixed(digest, word);
}

}  // namespace

void check_drift(comm::ProcessGroup& group, const NamedTensors& tensors) {
  const auto world = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> mine;  // digests; collectives have no u64
  std::uint64_t all = 0;
  for (const auto& [name, tensor] : tensors) {
    mine.push_back(static_cast<std::int64_t>(digest_of(tensor)));
    all = mixed(all, static_cast<std::uint64_t>(mine.back()));
  }
  const std::array<std::int64_t, 1> summary{static_cast<std::int64_t>(all)};
  std::vector<std::int64_t> summaries(world);
  group.all_gather(std::span<const std::int64_t>(summary), std::span<std::int64_t>(summaries));
  if (std::ranges::count(summaries, summaries[0]) == static_cast<std::ptrdiff_t>(world)) return;

  std::vector<std::int64_t> digests(world * mine.size());
  group.all_gather(std::span<const std::int64_t>(mine), std::span<std::int64_t>(digests));
  std::string first;
  int differ = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<std::pair<std::int64_t, std::vector<int>>> variants;  // by lowest rank
    for (std::size_t r = 0; r < world; ++r) {
      const std::int64_t digest = digests[r * mine.size() + i];
      auto found = std::ranges::find(variants, digest, [](const auto& v) { return v.first; });
      if (found == variants.end()) found = variants.insert(found, {digest, {}});
      found->second.push_back(static_cast<int>(r));
    }
    if (variants.size() == 1 || ++differ > 1) continue;
    first = "'" + tensors[i].first + "' has one value on ";
    for (const auto& variant : variants)
      first += (&variant == variants.data() ? "" : " and another on ") +
               describe_ranks(variant.second, group.size());
  }
  throw DriftError(fmt::format(
      "the replicas have drifted apart: {}{}; let all ranks start from one state and make the same "
      "updates",
      first, differ > 1 ? fmt::format(" (the first of {} that differ)", differ) : std::string()));
}

void check_finite(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (!raw::all_finite(tensor))
      throw Error(
          fmt::format("'{}' holds NaN or an infinity: the training has diverged, and nothing is "
                      "saved; try a smaller learning rate, or look for bad values in the data",
                      name));
}

}  // namespace ringsmith
