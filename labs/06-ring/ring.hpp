// Lab 06, part 1: the ring as a schedule.
//
// Every rank sends to its right neighbour and receives from its left one, chunk by chunk:
//
//     reduce-scatter, 3 ranks: chunk 0 on its way       all-gather: chunk 0 goes round unchanged
//
//       rank 1 --x1--> rank 2 --x1+x2--> rank 0            rank 0 --sum--> rank 1 --sum--> rank 2
//
// Chunk c belongs to rank c: after reduce-scatter, rank c holds the complete sum of chunk c. T is
// any type with +=; Link is any type that sends and receives spans (labs/kit/link.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab06 {

// Elements [first, first + length) of a buffer.
struct Chunk {
  std::size_t first = 0;
  std::size_t length = 0;
};

// Task 1. Cuts count elements into world chunks whose lengths differ by at most one, the longer
// ones first. If count is smaller than world, the last chunks are empty. 0 <= index < world.
inline Chunk chunk_of(std::size_t count, int world, int index) {
#ifdef SOLUTION
  const std::size_t n = std::size_t(world), i = std::size_t(index);
  const std::size_t base = count / n,
                    longer = count % n;  // the first `longer` chunks have one more
  return {i * base + std::min(i, longer), base + (i < longer ? 1 : 0)};
#else
  (void)count, (void)world, (void)index;
  kit::todo("task 1, chunk_of");
#endif
}

// One rank's part of a step: it sends a chunk to `to` while it receives a chunk from `from`.
struct Step {
  int to = 0;
  int send_chunk = 0;
  int from = 0;
  int recv_chunk = 0;
};

// Task 2. Returns a step of reduce-scatter, 0 to world - 2. No data moves yet.
inline Step reduce_scatter_step(int world, int rank, int step) {
#ifdef SOLUTION
  // Chunk c starts at rank c + 1; at step s it leaves rank c + 1 + s.
  const auto wrap = [world](int i) { return (i % world + world) % world; };
  return {wrap(rank + 1), wrap(rank - 1 - step), wrap(rank - 1), wrap(rank - 2 - step)};
#else
  (void)world, (void)rank, (void)step;
  kit::todo("task 2, reduce_scatter_step");
#endif
}

// Task 2. Returns a step of all-gather, 0 to world - 2. It begins where reduce-scatter ended.
inline Step all_gather_step(int world, int rank, int step) {
#ifdef SOLUTION
  const auto wrap = [world](int i) { return (i % world + world) % world; };
  return {wrap(rank + 1), wrap(rank - step), wrap(rank - 1), wrap(rank - 1 - step)};
#else
  (void)world, (void)rank, (void)step;
  kit::todo("task 2, all_gather_step");
#endif
}

// Task 3. On entry, work holds this rank's values. On return, chunk `rank` of work holds the sum
// over all ranks; the contents of the other chunks do not matter.
template <class T, class Link>
void reduce_scatter(Link& link, std::span<T> work) {
#ifdef SOLUTION
  const int world = link.world(), rank = link.rank();
  const auto part = [&](int index) {
    const Chunk chunk = chunk_of(work.size(), world, index);
    return work.subspan(chunk.first, chunk.length);
  };
  std::vector<T> arrived(chunk_of(work.size(), world, 0).length);  // chunk 0 is a longest one
  for (int step = 0; step < world - 1; ++step) {
    const Step now = reduce_scatter_step(world, rank, step);
    const std::span<T> mine = part(now.recv_chunk);
    const std::span<T> in = std::span<T>(arrived).first(mine.size());
    // If all ranks sent first, each would wait for a neighbour that also sends.
    link.exchange(now.to, part(now.send_chunk), now.from, in);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += in[i];
  }
#else
  (void)link, (void)work;
  kit::todo("task 3, reduce_scatter");
#endif
}

// Task 4. On entry, chunk `rank` of work is this rank's. On return, work holds the chunks of all
// ranks.
template <class T, class Link>
void all_gather(Link& link, std::span<T> work) {
#ifdef SOLUTION
  const int world = link.world(), rank = link.rank();
  const auto part = [&](int index) {
    const Chunk chunk = chunk_of(work.size(), world, index);
    return work.subspan(chunk.first, chunk.length);
  };
  for (int step = 0; step < world - 1; ++step) {
    const Step now = all_gather_step(world, rank, step);
    link.exchange(now.to, part(now.send_chunk), now.from, part(now.recv_chunk));
  }
#else
  (void)link, (void)work;
  kit::todo("task 4, all_gather");
#endif
}

// Task 5. output = the sum of all ranks' inputs, on every rank. The input does not change, unless
// output is the same memory (in place).
template <class T, class Link>
void all_reduce(Link& link, std::span<const T> input, std::span<T> output) {
#ifdef SOLUTION
  if (input.data() != output.data()) std::copy(input.begin(), input.end(), output.begin());
  reduce_scatter(link, output);
  all_gather(link, output);
#else
  (void)link, (void)input, (void)output;
  kit::todo("task 5, all_reduce");
#endif
}

}  // namespace lab06
