// Unusual and correct: the ring runs in the other direction (every rank sends to its left), and one
// loop runs the 2 (world - 1) steps of all_reduce.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lab06 {

struct Chunk {
  std::size_t first = 0, length = 0;
};
struct Step {
  int to = 0, send_chunk = 0, from = 0, recv_chunk = 0;
};

inline Chunk chunk_of(std::size_t count, int world, int index) {
  // The first element of chunk i is the number of elements in all chunks before it.
  const auto begin = [&](int i) {
    std::size_t first = 0;
    for (int j = 0; j < i; ++j) first += (count + std::size_t(world - 1 - j)) / std::size_t(world);
    return first;
  };
  return {begin(index), begin(index + 1) - begin(index)};
}

inline Step leftward(int world, int rank, int distance) {
  const int left = (rank + world - 1) % world, right = (rank + 1) % world;
  return {left, (rank + distance) % world, right, (rank + distance + 1) % world};
}
inline Step reduce_scatter_step(int world, int rank, int step) {
  return leftward(world, rank, step + 1);
}
inline Step all_gather_step(int world, int rank, int step) { return leftward(world, rank, step); }

template <class T, class Link>
void play(Link& link, std::span<T> work, int first, int last) {
  const int world = link.world();
  std::vector<T> landing(work.size() / std::size_t(world) + 1);
  for (int s = first; s < last; ++s) {
    const bool adds = s < world - 1;
    const Step step = adds ? reduce_scatter_step(world, link.rank(), s)
                           : all_gather_step(world, link.rank(), s - (world - 1));
    const Chunk out = chunk_of(work.size(), world, step.send_chunk);
    const Chunk in = chunk_of(work.size(), world, step.recv_chunk);
    const std::span<T> arrived(landing.data(), in.length);
    link.exchange(step.to, work.subspan(out.first, out.length), step.from, arrived);
    for (std::size_t i = 0; i < in.length; ++i) {
      T sum = arrived[i];  // not T{} + arrived[i]: 0 + -0 is 0
      if (adds) sum += work[in.first + i];
      work[in.first + i] = sum;
    }
  }
}

template <class T, class Link>
void reduce_scatter(Link& link, std::span<T> work) {
  play(link, work, 0, link.world() - 1);
}
template <class T, class Link>
void all_gather(Link& link, std::span<T> work) {
  play(link, work, link.world() - 1, 2 * (link.world() - 1));
}
template <class T, class Link>
void all_reduce(Link& link, std::span<const T> input, std::span<T> output) {
  for (std::size_t i = 0; i < input.size(); ++i) output[i] = input[i];
  play(link, output, 0, 2 * (link.world() - 1));
}

}  // namespace lab06
