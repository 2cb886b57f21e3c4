// Unusual and correct: no exchange. Even ranks send first, odd ranks receive first. With an odd
// number of ranks, the last rank and rank 0 are neighbours and both even, but they do not deadlock:
// rank 0 receives as soon as rank 1 has taken its message.
#pragma once

#include <algorithm>
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
  Chunk chunk;
  for (int i = 0; i <= index; ++i) {  // one after the other, as by hand
    chunk.first += chunk.length;
    chunk.length = count / std::size_t(world) + (std::size_t(i) < count % std::size_t(world));
  }
  return chunk;
}

inline int mod(int i, int world) { return ((i % world) + world) % world; }
inline Step reduce_scatter_step(int world, int rank, int step) {
  return {mod(rank + 1, world), mod(rank - step - 1, world), mod(rank - 1, world),
          mod(rank - step - 2, world)};
}
inline Step all_gather_step(int world, int rank, int step) {
  return reduce_scatter_step(world, rank, step - 1);  // the same walk, one chunk later
}

template <class T, class Link>
void trade(Link& link, const Step& step, std::span<T> out, std::span<T> in) {
  if (link.rank() % 2 == 0) {
    link.send(step.to, out);
    link.recv(step.from, in);
  } else {
    link.recv(step.from, in);
    link.send(step.to, out);
  }
}

template <class T>
std::span<T> piece(std::span<T> work, int world, int index) {
  const Chunk chunk = chunk_of(work.size(), world, index);
  return work.subspan(chunk.first, chunk.length);
}

template <class T, class Link>
void reduce_scatter(Link& link, std::span<T> work) {
  for (int s = 0; s + 1 < link.world(); ++s) {
    const Step step = reduce_scatter_step(link.world(), link.rank(), s);
    const std::span<T> mine = piece(work, link.world(), step.recv_chunk);
    std::vector<T> arrived(mine.size());
    trade(link, step, piece(work, link.world(), step.send_chunk), std::span<T>(arrived));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += arrived[i];
  }
}

template <class T, class Link>
void all_gather(Link& link, std::span<T> work) {
  for (int s = 0; s + 1 < link.world(); ++s) {
    const Step step = all_gather_step(link.world(), link.rank(), s);
    trade(link, step, piece(work, link.world(), step.send_chunk),
          piece(work, link.world(), step.recv_chunk));
  }
}

template <class T, class Link>
void all_reduce(Link& link, std::span<const T> input, std::span<T> output) {
  if (input.data() != output.data()) std::copy(input.begin(), input.end(), output.begin());
  reduce_scatter(link, output);
  all_gather(link, output);
}

}  // namespace lab06
