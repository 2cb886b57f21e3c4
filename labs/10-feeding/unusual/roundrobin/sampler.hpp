// Unusual and correct: the padded order is built, as in PyTorch's Python code, and each rank takes
// every world-th sample; the permutation counts down instead of up.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace lab10 {

inline std::vector<std::int64_t> randperm(std::int64_t n, std::uint64_t seed) {
  std::mt19937 engine(std::uint32_t(seed & 0xFFFFFFFFU));
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < n; ++i) order.push_back(i);
  for (std::int64_t left = n; left > 1; --left) {
    const auto first = std::size_t(n - left);
    const auto other = first + std::size_t(engine()) % std::size_t(left);
    const std::int64_t kept = order[first];
    order[first] = order[other];
    order[other] = kept;
  }
  return order;
}

struct SamplerOptions {
  int world = 1;
  int rank = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;
};

class DistributedSampler {
 public:
  DistributedSampler(std::int64_t samples, SamplerOptions options) : n_(samples), o_(options) {
    set_epoch(0);
  }
  void set_epoch(std::int64_t epoch, std::int64_t used = 0) {
    std::vector<std::int64_t> whole;
    if (o_.shuffle)
      whole = randperm(n_, o_.seed + std::uint64_t(epoch));
    else
      for (std::int64_t i = 0; i < n_; ++i) whole.push_back(i);
    std::vector<std::int64_t> rest;
    for (std::int64_t i = used; i < n_; ++i) rest.push_back(whole[std::size_t(i)]);
    const auto world = std::size_t(o_.world);
    // Pads with the beginning of the whole order, not of the rest.
    for (std::size_t i = 0; !o_.drop_last && rest.size() % world != 0; ++i)
      rest.push_back(whole[i % whole.size()]);
    while (rest.size() % world != 0) rest.pop_back();
    mine_.clear();
    for (std::size_t i = std::size_t(o_.rank); i < rest.size(); i += world)
      mine_.push_back(rest[i]);
  }
  [[nodiscard]] std::int64_t size() const { return std::int64_t(mine_.size()); }
  [[nodiscard]] std::vector<std::int64_t> indices() const { return mine_; }

 private:
  std::int64_t n_;
  SamplerOptions o_;
  std::vector<std::int64_t> mine_;
};

// Each triple gets its own seed sequence, made of all six words.
inline std::uint64_t sample_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const auto low = [](auto x) { return std::uint32_t(x); };
  const auto high = [](auto x) { return std::uint32_t(std::uint64_t(x) >> 32); };
  std::seed_seq words{low(seed), high(seed), low(epoch), high(epoch), low(sample), high(sample)};
  std::uint32_t out[2];
  words.generate(out, out + 2);
  return std::uint64_t(out[0]) << 32 | out[1];
}

}  // namespace lab10
