// The measuring programs (all_reduce_perf and its siblings): one table, in the manner of
// nccl-tests.
//
// A program says what its collective is (Benchmark); everything else is here: options, buffers,
// warm-up, timing, exact verification, the table, JSON, and the prediction of the cost model.
//
//     time    microseconds: the median over iterations of the slowest rank
//     algbw   size / time;   busbw = algbw times a factor of the collective (2 (n-1)/n for
//             all_reduce) that makes it comparable with the speed of a link, whatever n is
//     #wrong  elements, over all ranks, that differ from the exact result; guard words included
#pragma once

#include <functional>

#include "labs/apps/common/perf_data.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::apps {

struct Benchmark {
  const char* name;
  const char* description;
  comm::Collective collective = comm::Collective::all_reduce;  // for the prediction
  bool predicted = true;  // false: no schedule of this (send/recv)
  bool reduces = false;
  bool rooted = false;
  bool out_of_place = true, in_place = true;
  int least_world = 1;

  // Lengths in units of `part` elements: 1 or world. The longer of both is the table's size.
  std::function<int(int world)> input_parts, output_parts;
  std::function<double(int world)> bus_factor;
  std::function<void(comm::ProcessGroup&, comm::ConstBuffer, comm::Buffer, comm::ReduceOp,
                     int root)>
      run;
  // Is there a result on this rank, and which value is its element i.
  std::function<bool(int rank, int root)> has_result;
  std::function<Expected(int rank, int world, std::size_t part, int root, std::size_t i)> expected;
};

inline int one_part(int /*world*/) { return 1; }
inline int world_parts(int world) { return world; }

// The whole of main(): options, table, exit code.
int run_benchmark(const Benchmark& benchmark, int argc, char** argv);

}  // namespace ringsmith::apps
