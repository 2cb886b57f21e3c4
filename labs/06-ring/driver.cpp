// Runs the student's ring on the kit's fabric.
#include LAB06_RING

#include "labs/kit/driver.hpp"

#include <algorithm>

#include "labs/kit/counted.hpp"
#include "labs/kit/fabric/fabric.hpp"
#include "labs/kit/guarded.hpp"

using kit::Counted;
using kit::Link;

namespace {

std::string name_of(const char* what, int rank) { return what + ("." + std::to_string(rank)); }

// Runs a collective on every rank, one or more times. fill(rank, index) returns the input; `report`
// records a rank's output of the last call. earlier: lengths of preceding calls.
template <class T, class Fill, class Report>
void run_collective(const kit::Request& in, kit::Observation& out, Fill fill, Report report) {
  const kit::FabricOptions options = kit::fabric_options(in);
  const auto offset = std::size_t(in.integer("offset", 0));  // in elements; 1 misaligns the data
  const std::vector<std::int64_t> earlier =
      in.has("earlier") ? in.integers("earlier") : std::vector<std::int64_t>{};
  const auto calls = in.integer("calls", 1) + std::int64_t(earlier.size());
  const bool in_place = in.integer("in_place", 0) != 0;
  const std::string what = in.text("collective", "all_reduce");
  kit::Fabric fabric(options);
  std::vector<std::int64_t> guards, unchanged;
  guards.resize(std::size_t(options.world));
  unchanged.resize(std::size_t(options.world), 1);
  fabric.run([&](Link& link) {
    const int rank = link.rank();
    for (std::int64_t call = 0; call < calls; ++call) {
      const auto count = call < std::int64_t(earlier.size())
                             ? std::size_t(earlier[std::size_t(call)])
                             : std::size_t(in.integer("count"));
      kit::Guarded<T> one(count, offset), other(count, offset);
      const bool mirrored = in.integer("mirrored", 0) != 0;  // swaps the roles of the two buffers
      kit::Guarded<T>&input = mirrored ? other : one, &output = mirrored ? one : other;
      for (std::size_t i = 0; i < count; ++i) input.span()[i] = fill(rank, i);
      const std::vector<T> before(input.span().begin(), input.span().end());
      if (in_place || what != "all_reduce")
        std::copy(before.begin(), before.end(), output.span().begin());
      fabric.begin(rank, what.c_str());
      const std::span<T> work = output.span();
      if (what == "reduce_scatter")
        lab06::reduce_scatter<T>(link, work);
      else if (what == "all_gather")
        lab06::all_gather<T>(link, work);
      else if (in_place)
        lab06::all_reduce<T>(link, std::span<const T>(work), work);
      else
        lab06::all_reduce<T>(link, std::span<const T>(input.span()), work);
      guards[std::size_t(rank)] += input.broken() + output.broken();
      unchanged[std::size_t(rank)] &= input.holds(before);
      if (call == calls - 1) report(rank, work);
    }
  });
  fabric.observe(out);
  out.put("guards", guards);
  out.put("unchanged", unchanged);
}

}  // namespace

KIT_SCENARIO(counted) {
  run_collective<Counted>(
      in, out, [](int rank, std::size_t i) { return kit::counted(rank, i); },
      [&](int rank, std::span<Counted> work) { out.put(name_of("out", rank), runs_of(work)); });
}

// Floats: element i of rank r is table[r * period + i % period].
KIT_SCENARIO(floats) {
  const std::vector<float> table = in.floats("table");
  const auto period = std::size_t(in.integer("period"));
  run_collective<float>(
      in, out,
      [&](int rank, std::size_t i) { return table[std::size_t(rank) * period + i % period]; },
      [&](int rank, std::span<float> work) {
        out.put(name_of("out", rank), std::span<const float>(work));
      });
}

// Runs task 1 alone.
KIT_SCENARIO(chunks) {
  std::vector<std::int64_t> firsts, lengths;
  const int world = int(in.integer("world"));
  (void)lab06::chunk_of(1009, world + 1, world);  // must not affect later calls
  for (int index = 0; index < world; ++index) {
    const lab06::Chunk chunk = lab06::chunk_of(std::size_t(in.integer("count")), world, index);
    firsts.push_back(std::int64_t(chunk.first));
    lengths.push_back(std::int64_t(chunk.length));
  }
  out.put("first", firsts);
  out.put("length", lengths);
}

// Runs task 2 alone. Reports to, send_chunk, from and recv_chunk of each rank, step by step.
KIT_SCENARIO(schedule) {
  const int world = int(in.integer("world"));
  (void)lab06::all_gather_step(world + 2, 1, 1), lab06::reduce_scatter_step(world + 2, 1, 1);
  for (const bool gather : {false, true}) {
    std::vector<std::int64_t> rows;
    for (int step = 0; step < world - 1; ++step)
      for (int rank = 0; rank < world; ++rank) {
        const lab06::Step now = gather ? lab06::all_gather_step(world, rank, step)
                                       : lab06::reduce_scatter_step(world, rank, step);
        rows.insert(rows.end(), {now.to, now.send_chunk, now.from, now.recv_chunk});
      }
    out.put(gather ? "all_gather" : "reduce_scatter", rows);
  }
}
