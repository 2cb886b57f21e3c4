// Lab 17, part 1: communication hooks. What the ranks exchange for a bucket, instead of all of it.
//
//     bucket of this rank --> hook --> the average over the ranks, or something near it
//
// A hook is called with each full bucket of gradients, on every rank. What it leaves in the bucket
// is what the optimizer gets. Nobody divides after it: a hook that sums has to divide.
//
//     average      n floats travel                          exact
//     bf16         n numbers of 16 bits                     rounded twice
//     top-k        k floats and k places                    the rest waits for the next step
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
  int index = 0;          // which of the model's buckets; the same one has the same index each time
  std::span<float> data;  // this rank's gradients; after the hook, the average. May be empty
};

// Task 1. The average over the ranks: each gradient is divided by the number of ranks, as a float,
// and then they are summed. (The sum of large gradients would be infinite before it is divided.)
// One collective: an all-reduce.
inline void average_hook(Group& group, const Bucket& bucket) {
#ifdef SOLUTION
  for (float& gradient : bucket.data) gradient /= float(group.world());
  group.all_reduce(bucket.data);
#else
  (void)group, (void)bucket;
  kit::todo("task 1, average_hook");
#endif
}

// Given: to the nearest bf16 and back; lab 14 is about them.
inline std::uint16_t bf16_of(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t upper = all >> 16, rest = all % 0x10000;
  if (std::isnan(value)) return std::uint16_t(upper | 0x40U);
  return std::uint16_t(upper + (rest + upper % 2 > 0x8000 ? 1 : 0));
}
inline float float_of(std::uint16_t bf16) { return std::bit_cast<float>(bf16 * 0x10000U); }

// Task 2. The average, with bf16 on the wire. Each rank rounds its gradients to bf16 and sends to
// each rank a part, numbers of 16 bits; what the parts are is up to you, if none is larger than
// n / world, rounded up. A rank converts the numbers of its part back to float, divides each by the
// number of ranks, and adds them up, in float, in the order of the ranks. It rounds the averages to
// bf16, and all ranks get all of them. Two collectives; 2 bytes an element in each.
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

// Task 3. The places of the k values of largest magnitude, ascending; all places if there are k or
// fewer. A NaN counts as larger than every number, infinity too: what is broken must be seen by
// all. Of equal magnitudes (two NaNs are equal) the lower place is taken first. In about the time
// of a sort: half a million of a million places take less than a second.
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

// What one rank sends of a bucket.
struct Sparse {
  std::vector<std::uint32_t> places;  // ascending
  std::vector<float> values;          // one for each place
};

// Of each bucket only k values travel. The others are not lost: they wait in the residual of their
// bucket, and are added to the next gradient of the same element (error feedback).
class TopK {
 public:
  // k may be different on each rank, and may be 0.
  explicit TopK(std::size_t k) : k_(k) {}

  // Task 4. Takes a gradient of bucket `index`: adds the bucket's residual to it, as floats, and
  // chooses by task 3 what is sent. What is not sent is the new residual, so that of each element
  // the whole is either sent or kept, with the same bits. The first residual is zeros; also of a
  // bucket that has another size than last time.
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

  // What waits of a bucket: empty if there was none of that index yet.
  [[nodiscard]] std::vector<float> residual(int index) const {
#ifdef SOLUTION
    const auto found = residuals_.find(index);
    return found == residuals_.end() ? std::vector<float>{} : found->second;
#else
    (void)index;
    kit::todo("task 4, residual");
#endif
  }

  // Task 5. The hook: the bucket becomes the sum over the ranks, in their order, of what each has
  // sent of it, each value divided by the number of ranks before it is added. Three collectives at
  // most: how many values each rank has, which are different numbers; then their places and values.
  // Bytes: 8 for each rank's number, 8 for each value and its place, to each other rank.
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
