// Measures the memory of FSDP in processes, one per rank, with the allocator's own counter.
#include <algorithm>
#include <cstdio>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/job/forked.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/parallel/beyond/fsdp.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

struct Measured {
  double kept = 0;        // bytes, between steps with gradients
  double peak = 0;        // during a step
  double parameters = 0;  // FullyShardedDataParallel::parameter_bytes() between steps
  double after = 0;       // when FSDP and the model are gone
};

constexpr std::int64_t kWidth = 128;
constexpr int kLayers = 10;  // the root unit has the first and the last

// One row makes activations small. Bytes are relative to those before the model's construction.
Measured measure(const Group& group, bool reshard) {
  const auto in_use = [] { return static_cast<double>(host_allocator::stats().current.value); };
  const double before = in_use();
  Measured out;
  {
    MLP model(std::vector<std::int64_t>(kLayers + 1, kWidth));
    std::vector<Module*> units;
    for (std::size_t i = 2; i + 1 < model.size(); i += 2) units.push_back(&model[i]);
    FullyShardedDataParallel fsdp(model, units, group,
                                  {.reshard_after_forward = reshard, .overlap = Overlap::on});
    AdamW optimizer(fsdp.parameters(), AdamOptions{});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      host_allocator::reset_peak();
      sum(fsdp.forward(ones({1, kWidth}))).backward();
      out.peak = static_cast<double>(host_allocator::stats().peak.value) - before;
      optimizer.step();
      out.kept = in_use() - before;
      out.parameters = static_cast<double>(fsdp.parameter_bytes().value);
    }
  }
  out.after = in_use() - before;
  return out;
}

// Forks the ranks, because the allocator's counter covers a whole process.
std::vector<Measured> measure_ranks(int world, bool reshard) {
  const std::size_t bytes = sizeof(Measured) * static_cast<std::size_t>(world);
  void* const shared =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto* const results = static_cast<Measured*>(shared);
  const comm::ForkedMeeting meeting(world);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        const auto group = comm::init_process_group(meeting.join(rank, std::chrono::seconds(30)),
                                                    comm::GroupOptions{});
        results[rank] = measure(group, reshard);
        code = 0;
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      }
      _exit(code);
    }
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::vector<Measured> out(results, results + world);
  munmap(shared, bytes);
  CHECK(good);
  return out;
}

constexpr double kUnit = 4.0 * (kWidth * kWidth + kWidth);  // bytes
constexpr int kUnits = kLayers - 2;                         // besides the root unit

// The most memory that a rank holds while backward computes the gradients of unit i, from the last
// unit to the first: its shards, with AdamW's two numbers per element; the parameters of the root
// unit, of unit i and of the unit gathered next (with ZeRO-2, of all remaining units); the
// gradients of the root unit, of unit i and of the previous unit, which is being reduced; and the
// averages reduced before.
double largest_in_backward(int world, bool reshard) {
  double most = 0;
  for (int i = kUnits; i >= 1; --i) {
    const double shards = 3.0 * kLayers / world;
    const double parameters = 2 + (reshard ? std::min(i, 2) : i);
    const double gradients = 2 + (i < kUnits ? 2 : 1);
    const double averages = static_cast<double>(kUnits - i) / world;
    most = std::max(most, shards + parameters + gradients + averages);
  }
  return most * kUnit;
}

}  // namespace

TEST_CASE("FSDP's memory is the formula's within 10 %, and is freed", "[fsdp]") {
  constexpr double kAll = kUnit * kLayers;
  for (int world = 1; world <= 5; ++world)
    for (const bool reshard : {true, false}) {
      const double keeps = 4 * kAll / world;  // parameters, gradients, two numbers of AdamW
      const double peak = largest_in_backward(world, reshard);
      // The table in fsdp.hpp.
      const double bound = keeps + (reshard ? 8 * kUnit : kAll + 4 * kUnit);
      for (const Measured& m : measure_ranks(world, reshard)) {
        INFO(world << " ranks, " << (reshard ? "ZeRO-3" : "ZeRO-2") << ": keeps " << m.kept
                   << " of " << keeps << ", peak " << m.peak << " of " << peak << ", at most "
                   << bound);
        CHECK(m.kept > 0.9 * keeps);
        CHECK(m.kept < 1.1 * keeps);
        CHECK(m.parameters > 0.999 * kAll / world);
        CHECK(m.parameters < 1.001 * kAll / world + 64 * kLayers);
        CHECK(m.peak > 0.9 * peak);
        CHECK(m.peak < 1.1 * peak);
        CHECK(m.peak < bound);
        CHECK(m.after == 0);
      }
    }
}
