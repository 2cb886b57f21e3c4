// by_hand: ring all-reduce on paper: three ranks, six numbers, one table per step.
//
// Rank 0 has ones, rank 1 tens, rank 2 hundreds, so that the digits of a number show which ranks
// contributed to it: 101 is ranks 0 and 2. The runtime runs the same steps.
#include <cstdio>
#include <vector>

#include "runtime/comm/schedule/ring.hpp"

using namespace ringsmith::comm;

using Buffer = std::vector<int>;

std::vector<int> chunk_of(const Buffer& buffer, const Chunk& chunk) {
  const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(chunk.count)};
}

void print(const char* title, const Schedule& ring, const std::vector<Buffer>& buffers) {
  std::printf("%s\n", title);
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    std::printf("  rank %zu ", rank);
    for (const Chunk& chunk : ring.chunks) {
      std::printf(" |");
      for (const int number : chunk_of(buffers[rank], chunk)) std::printf(" %3d", number);
    }
    std::printf(" |\n");
  }
}

int main() {
  const int ranks = 3;
  const Schedule ring = ring_all_reduce(ranks, 6);
  std::vector<Buffer> buffers = {
      {1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}, {100, 200, 300, 400, 500, 600}};
  print("at the start", ring, buffers);
  for (std::size_t step = 0; step < ring.steps[0].size(); ++step) {
    // All messages leave before any arrives: each holds the sender's chunk as it is now.
    std::vector<std::vector<int>> sent;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto chunk = static_cast<std::size_t>(ring.steps[rank][step].send_chunk);
      sent.push_back(chunk_of(buffers[rank], ring.chunks[chunk]));
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Step& mine = ring.steps[rank][step];
      const auto& message = sent[static_cast<std::size_t>(mine.recv_peer)];
      const std::size_t begin = ring.chunks[static_cast<std::size_t>(mine.recv_chunk)].offset;
      for (std::size_t i = 0; i < message.size(); ++i) {
        int& number = buffers[rank][begin + i];
        number = mine.action == Action::reduce ? number + message[i] : message[i];
      }
    }
    const bool adding = ring.steps[0][step].action == Action::reduce;
    char title[64];
    std::snprintf(title, sizeof title, "step %zu: %s", step,
                  adding ? "add what arrives" : "replace by what arrives");
    print(title, ring, buffers);
  }
}
