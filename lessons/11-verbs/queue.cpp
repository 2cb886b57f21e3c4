// queue PLACES EVERY: a send queue of PLACES places, in which every EVERY-th request asks for a
// completion (0: none does). The device executes requests immediately. Posts in six rounds, or
// until a full queue can never have room again.
//
// A request keeps its place until its own completion, or a later request's, has been taken from
// the completion queue: the device reports nothing about requests that did not ask.
#include <cstdio>
#include <deque>

#include "lessons/arguments.hpp"

int main(int argc, char** argv) {
  const ringsmith::lessons::Arguments given(argc, argv, "queue [PLACES [EVERY]]", 2);
  const int places = static_cast<int>(given.whole(1, 8, 1, 1'000'000));
  const int every = static_cast<int>(given.whole(2, 4, 0, 1'000'000));
  std::deque<int> completions;  // requests whose completion has not been taken
  int posted = 0, done = 0;
  for (int events = 0; events < 6; ++events) {
    const int before = posted;
    while (posted - done < places) {
      ++posted;
      if (every > 0 && posted % every == 0) completions.push_back(posted);
    }
    std::printf("posted %2d to %2d, places in use: %d of %d\n", before + 1, posted, posted - done,
                places);
    if (completions.empty()) {
      std::printf("no completion will ever come: nobody knows that a place is free\n");
      return 0;
    }
    done = completions.front();
    completions.pop_front();
    std::printf("  completion of %d taken: all up to %d are done\n", done, done);
  }
}
