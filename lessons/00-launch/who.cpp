// who: the smallest program of a job. It meets the other ranks and prints its place.
//
//     ringrun --standalone --nproc-per-node 3 -- lesson00_who
//     lesson00_who 2000                  waits 2,000 ms for the other ranks, instead of 30 s
#include <cstdio>
#include <cstdlib>

#include "lessons/arguments.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

using namespace ringsmith;

int main(int argc, char** argv) try {
  comm::GroupOptions options;
  const lessons::Arguments given(argc, argv, "who [MILLISECONDS]", 1);
  options.timeout = std::chrono::milliseconds(given.whole(1, 30'000, 1, 1'000'000'000));

  // Collective: returns when all ranks have joined, and throws if one does not join in time.
  const auto group = comm::init_process_group(options);

  const char* local = std::getenv("LOCAL_RANK");
  const int next = (group->rank() + 1) % group->size();
  std::printf("I am rank %d of %d, local rank %s; rank %d is next\n", group->rank(), group->size(),
              local != nullptr ? local : "unknown", next);
} catch (const Error& error) {
  std::fprintf(stderr, "who: %s\n", error.what());
  return 1;
}
