#include "runtime/comm/schedule/ring.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

using StepFunction = Step (*)(int world, int rank, int step, int direction);

Schedule unroll(Algorithm algorithm, Collective collective, int world, std::size_t count,
                StepFunction step_of, int steps, int direction = +1) {
  Schedule schedule = empty_schedule(algorithm, collective, world, count, world);
  for (int rank = 0; rank < world; ++rank)
    for (int step = 0; step < steps; ++step)
      schedule.add(rank, step_of(world, rank, step, direction));
  return schedule;
}

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

// In direction +1, chunk c starts at rank c + 1, and rank c + 1 + s sends it at step s. Thus rank r
// sends chunk r - 1 - s and receives chunk r - 2 - s.
Step ring_reduce_scatter_step(int world, int rank, int step, int direction) {
  return {wrap(rank + direction, world), wrap(rank - direction * (1 + step), world),
          wrap(rank - direction, world), wrap(rank - direction * (2 + step), world),
          Action::reduce};
}

// Chunk c is complete at rank c. In direction +1, rank c + s sends it at step s.
Step ring_all_gather_step(int world, int rank, int step, int direction) {
  return {wrap(rank + direction, world), wrap(rank - direction * step, world),
          wrap(rank - direction, world), wrap(rank - direction * (1 + step), world), Action::copy};
}

Step ring_all_reduce_step(int world, int rank, int step, int direction) {
  return step < world - 1 ? ring_reduce_scatter_step(world, rank, step, direction)
                          : ring_all_gather_step(world, rank, step - (world - 1), direction);
}

Schedule ring_reduce_scatter(int world, std::size_t count) {
  return unroll(Algorithm::ring, Collective::reduce_scatter, world, count, ring_reduce_scatter_step,
                world - 1);
}

Schedule ring_all_gather(int world, std::size_t count) {
  return unroll(Algorithm::ring, Collective::all_gather, world, count, ring_all_gather_step,
                world - 1);
}

Schedule ring_all_reduce(int world, std::size_t count) {
  return unroll(Algorithm::ring, Collective::all_reduce, world, count, ring_all_reduce_step,
                2 * (world - 1));
}

Schedule gloo_ring_all_reduce(int world, std::size_t count, std::size_t element_size) {
  Schedule schedule = unroll(Algorithm::gloo_ring, Collective::all_reduce, world, count,
                             ring_all_reduce_step, 2 * (world - 1), -1);
  schedule.chunks = gloo_chunks(world, count, element_size);
  return schedule;
}

std::vector<Chunk> gloo_chunks(int world, std::size_t count, std::size_t element_size) {
  check_world(world);
  require(element_size >= 1, "element size 0: gloo's chunks need the size of an element in bytes");
  constexpr std::size_t kMaxSegment = std::size_t{1} << 20;  // bytes
  const auto ranks = static_cast<std::size_t>(world);
  const std::size_t total = count * element_size;
  const std::size_t segments =
      round_up(std::max((total + kMaxSegment - 1) / kMaxSegment, 2 * ranks), ranks);
  const std::size_t segment = round_up((total + segments - 1) / segments, element_size);
  const std::size_t chunk = segments / ranks * segment / element_size;  // elements
  std::vector<Chunk> chunks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t begin = std::min(rank * chunk, count);
    chunks.push_back({begin, std::min(begin + chunk, count) - begin});
  }
  return chunks;
}

}  // namespace ringsmith::comm
