// Lab 17, part 1: communication hooks, which decide what the ranks exchange for a bucket.
//
//     bucket of this rank --> hook --> the average over the ranks, or an approximation
//
// A hook is called with each full bucket of gradients, on every rank. It replaces the gradients in
// the bucket with those that the optimizer will use, so a hook that sums must also divide.
//
//     average      n floats                                 rounded as floats
//     bf16         n numbers of 16 bits                     rounded twice
//     top-k        k floats and k places                    the rest is kept for the next step
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "labs/17-beyond/group.hpp"
#include "labs/kit/todo.hpp"

namespace lab17 {

struct Bucket {
  int index = 0;          // of the bucket in the model; the same in every step
  std::span<float> data;  // this rank's gradients; after the hook, the average. May be empty
};

// Task 1. Averages over the ranks: divides each gradient by the number of ranks, as a float, then
// sums. (The sum of large gradients could overflow before a division.) One collective: an
// all-reduce.
inline void average_hook(Group& group, const Bucket& bucket) {
#ifdef SOLUTION
  for (float& gradient : bucket.data) gradient /= float(group.world());
  group.all_reduce(bucket.data);
#else
  (void)group, (void)bucket;
  kit::todo("task 1, average_hook");
#endif
}

// Given. Convert to the nearest bf16 and back, as in lab 14.
inline std::uint16_t bf16_of(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t upper = all >> 16, rest = all % 0x10000;
  if (std::isnan(value)) return std::uint16_t(upper | 0x40U);
  return std::uint16_t(upper + (rest + upper % 2 > 0x8000 ? 1 : 0));
}
inline float float_of(std::uint16_t bf16) { return std::bit_cast<float>(bf16 * 0x10000U); }

// Task 2. Averages, and sends bf16 only. Each rank rounds its gradients to bf16 and sends each
// rank a part as 16-bit numbers; you choose the parts, but none may be larger than n / world,
// rounded up. A rank converts the numbers of its part back to float, divides each by the number of
// ranks, and adds them, in float, in rank order. It rounds the averages to bf16 and sends them to
// all ranks. Two collectives with 2 bytes per element each.
inline void bf16_hook(Group& group, const Bucket& bucket) {
#ifdef SOLUTION
  const std::size_t world = std::size_t(group.world()), count = bucket.data.size();
  Counts counts;
  for (std::size_t r = 0; r < world; ++r)
    counts.push_back(count / world + (r < count % world ? 1 : 0));
  std::vector<std::uint16_t> codes(count);
  std::ranges::transform(bucket.data, codes.begin(), bf16_of);
  const std::size_t mine = counts[std::size_t(group.rank())];
  std::vector<std::uint16_t> parts(mine * world), averages(mine);
  group.all_to_all(codes, counts, parts);
  for (std::size_t i = 0; i < mine; ++i) {
    float sum = 0;
    for (std::size_t r = 0; r < world; ++r) sum += float_of(parts[r * mine + i]) / float(world);
    averages[i] = bf16_of(sum);
  }
  group.all_gather(averages, counts, codes);
  std::ranges::transform(codes, bucket.data.begin(), float_of);
#else
  (void)group, (void)bucket;
  kit::todo("task 2, bf16_hook");
#endif
}

// Task 3. Returns the places of the k values of largest magnitude, ascending; all places if there
// are k or fewer. A NaN counts as larger than every number, even infinity, so that all ranks see a
// broken gradient. Of equal magnitudes (any two NaNs are equal) the lower place is taken first.
// A full sort is fast enough: half a million of a million places must take less than 4 s.
inline std::vector<std::uint32_t> top_k(std::span<const float> values, std::size_t k) {
#ifdef SOLUTION
  std::vector<std::uint32_t> places(values.size());
  std::iota(places.begin(), places.end(), 0U);
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    const float x = std::fabs(values[a]), y = std::fabs(values[b]);
    if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
    if (x > y || x < y) return x > y;
    return a < b;
  };
  k = std::min(k, places.size());
  std::ranges::nth_element(places, places.begin() + std::ptrdiff_t(k), before);
  places.resize(k);
  std::ranges::sort(places);
  return places;
#else
  (void)values, (void)k;
  kit::todo("task 3, top_k");
#endif
}

// The part of a bucket that one rank sends.
struct Sparse {
  std::vector<std::uint32_t> places;  // ascending
  std::vector<float> values;          // one per place
};

// Sends only k values of each bucket. The others stay in the bucket's residual and are added to the
// next gradient of the same element (error feedback).
class TopK {
 public:
  // k may differ between ranks, and may be 0.
  explicit TopK(std::size_t k) : k_(k) {}

  // Task 4. Adds the residual of bucket `index` to this gradient, as floats, and selects the values
  // to send by task 3. The rest is the new residual, so each element's sum is either sent or kept,
  // with the same bits. The residual consists of zeros before the first call, and whenever the size
  // of the bucket has changed.
  Sparse compress(int index, std::span<const float> gradient) {
#ifdef SOLUTION
    std::vector<float>& residual = residuals_[index];
    if (residual.size() != gradient.size()) residual.assign(gradient.size(), 0.0F);
    for (std::size_t i = 0; i < gradient.size(); ++i) residual[i] += gradient[i];
    Sparse sent;
    sent.places = top_k(residual, k_);
    for (const std::uint32_t place : sent.places) {
      sent.values.push_back(residual[place]);
      residual[place] = 0;
    }
    return sent;
#else
    (void)index, (void)gradient;
    kit::todo("task 4, compress");
#endif
  }

  // Returns the residual of a bucket, or an empty vector if compress() has not seen that index.
  [[nodiscard]] std::vector<float> residual(int index) const {
#ifdef SOLUTION
    const auto found = residuals_.find(index);
    return found == residuals_.end() ? std::vector<float>{} : found->second;
#else
    (void)index;
    kit::todo("task 4, residual");
#endif
  }

  // Task 5. The hook: replaces the bucket with the sum, in rank order, of the values that each rank
  // sends, each value divided by the number of ranks before it is added. Uses at most three
  // collectives: one for the number of values of each rank (they may differ), one for the places
  // and one for the values. Sends every other rank 8 bytes for the number, and 8 bytes for each
  // value with its place.
  void operator()(Group& group, const Bucket& bucket) {
#ifdef SOLUTION
    const std::size_t world = std::size_t(group.world());
    const Sparse sent = compress(bucket.index, bucket.data);
    const Counts own{sent.places.size()};
    Counts counts(world);
    group.all_gather(own, Counts(world, 1), counts);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    std::vector<std::uint32_t> places(total);
    std::vector<float> values(total);
    group.all_gather(sent.places, counts, places);
    group.all_gather(sent.values, counts, values);
    std::ranges::fill(bucket.data, 0.0F);
    for (std::size_t i = 0; i < total; ++i)
      bucket.data[places[i]] += values[i] / float(group.world());
#else
    (void)group, (void)bucket;
    kit::todo("task 5, the top-k hook");
#endif
  }

 private:
  std::size_t k_;
#ifdef SOLUTION
  std::map<int, std::vector<float>> residuals_;
#endif
};

}  // namespace lab17
