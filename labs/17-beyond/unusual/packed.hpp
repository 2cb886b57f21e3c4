// Unusual and correct: top-k by keys instead of comparisons, and one message of pairs.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <unordered_map>
#include <vector>

#include "labs/17-beyond/group.hpp"

namespace lab17 {

struct Bucket {
  int index = 0;
  std::span<float> data;
};

// Fills the ranks in order with equal blocks: 7 elements on 3 ranks are 3, 3, 1.
inline Counts blocks(std::size_t count, std::size_t world) {
  Counts out(world, 0);
  const std::size_t each = (count + world - 1) / world;
  for (std::size_t& mine : out) {
    mine = std::min(each, count);
    count -= mine;
  }
  return out;
}

inline void average_hook(Group& group, const Bucket& bucket) {
  std::vector<float> divided;
  for (const float g : bucket.data) divided.push_back(g / float(group.world()));
  group.all_reduce(divided);
  std::ranges::copy(divided, bucket.data.begin());
}

inline std::uint16_t bf16_of(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t upper = all >> 16, rest = all % 0x10000;
  if (std::isnan(value)) return std::uint16_t(upper | 0x40U);
  return std::uint16_t(upper + (rest + upper % 2 > 0x8000 ? 1 : 0));
}
inline float float_of(std::uint16_t bf16) { return std::bit_cast<float>(bf16 * 0x10000U); }

inline void bf16_hook(Group& group, const Bucket& bucket) {
  const Counts counts = blocks(bucket.data.size(), std::size_t(group.world()));
  const std::size_t mine = counts[std::size_t(group.rank())];
  std::vector<std::uint16_t> codes;
  for (const float g : bucket.data) codes.push_back(bf16_of(g));
  std::vector<std::uint16_t> arrived(mine * counts.size());
  group.all_to_all(codes, counts, arrived);
  std::vector<float> sums(mine);
  for (std::size_t i = 0; i < arrived.size(); ++i)
    sums[i % mine] += float_of(arrived[i]) / float(group.world());
  std::vector<std::uint16_t> rounded;
  for (const float sum : sums) rounded.push_back(bf16_of(sum));
  group.all_gather(rounded, counts, codes);
  for (std::size_t i = 0; i < codes.size(); ++i) bucket.data[i] = float_of(codes[i]);
}

// All NaNs are made equal, so the bits of the magnitudes sort like the magnitudes, with NaN above
// all numbers. The low bits hold the inverted place, so there are no ties.
inline std::vector<std::uint32_t> top_k(std::span<const float> values, std::size_t k) {
  std::vector<std::uint64_t> keys;
  keys.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
    if (bits > 0x7F800000U) bits = 0x7FFFFFFFU;
    keys.push_back(bits << 32 | (0xFFFFFFFFU - std::uint32_t(i)));
  }
  const std::size_t taken = std::min(k, keys.size());
  std::ranges::partial_sort(keys, keys.begin() + std::ptrdiff_t(taken), std::ranges::greater{});
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < taken; ++i)
    places.push_back(0xFFFFFFFFU - std::uint32_t(keys[i] & 0xFFFFFFFFU));
  std::ranges::sort(places);
  return places;
}

struct Sparse {
  std::vector<std::uint32_t> places;
  std::vector<float> values;
};

class TopK {
 public:
  explicit TopK(std::size_t k) : k_(k) {}

  Sparse compress(int index, std::span<const float> gradient) {
    std::vector<float> whole(gradient.begin(), gradient.end());
    const std::vector<float>& waits = residuals_[index];
    if (waits.size() == whole.size())
      std::ranges::transform(whole, waits, whole.begin(), std::plus<float>{});
    Sparse sent{top_k(whole, k_), {}};
    for (const std::uint32_t place : sent.places)
      sent.values.push_back(std::exchange(whole[place], 0.0F));
    residuals_[index] = std::move(whole);
    return sent;
  }

  [[nodiscard]] std::vector<float> residual(int index) const {
    return residuals_.count(index) == 0 ? std::vector<float>{} : residuals_.at(index);
  }

  void operator()(Group& group, const Bucket& bucket) {
    struct Pair {
      std::uint32_t place;
      float value;
    };
    const Sparse sent = compress(bucket.index, bucket.data);
    std::vector<Pair> mine, all;
    for (std::size_t i = 0; i < sent.places.size(); ++i)
      mine.push_back({sent.places[i], sent.values[i]});
    std::vector<std::uint32_t> sizes(std::size_t(group.world()));
    group.all_gather(std::vector{std::uint32_t(mine.size())}, Counts(sizes.size(), 1), sizes);
    all.resize(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    group.all_gather(mine, Counts(sizes.begin(), sizes.end()), all);
    std::ranges::fill(bucket.data, 0.0F);
    for (const Pair& pair : all) bucket.data[pair.place] += pair.value / float(group.world());
  }

 private:
  std::size_t k_;
  std::unordered_map<int, std::vector<float>> residuals_;
};

}  // namespace lab17
