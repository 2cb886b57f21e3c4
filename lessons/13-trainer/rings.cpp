// rings right|left|mask WORLD: the steps of a ring all-reduce as text, for train_gpt --schedule.
// right and left are the directions of correct rings; mask is a mistake that works only if WORLD is
// a power of two.
#include <cstdio>
#include <string>

#include "lessons/arguments.hpp"

int main(int argc, char** argv) {
  const std::string kind = argc == 3 ? argv[1] : "";
  if (kind != "right" && kind != "left" && kind != "mask") {
    std::fprintf(stderr, "rings: say right, left or mask, and WORLD, as in right 4\n");
    return 6;
  }
  const ringsmith::lessons::Arguments given(argc, argv, "rings right|left|mask WORLD", 2);
  const int world = static_cast<int>(given.whole(2, 1, 1, 1000));
  const int direction = kind == "left" ? -1 : 1;
  const auto wrap = [&](int i) {
    return kind == "mask" ? i & (world - 1) : (i % world + world) % world;
  };
  std::printf("all_reduce world %d chunks %d\n", world, world);
  for (int rank = 0; rank < world; ++rank)
    for (int s = 0; s < 2 * (world - 1); ++s) {
      const bool adds = s < world - 1;
      const int behind = adds ? 1 + s : s - (world - 1);  // distance to the chunk that it sends
      std::printf("%d %d %d %d %d %s\n", rank, wrap(rank + direction),
                  wrap(rank - direction * behind), wrap(rank - direction),
                  wrap(rank - direction * (behind + 1)), adds ? "reduce" : "copy");
    }
}
