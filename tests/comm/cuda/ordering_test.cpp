// Runs the kernel engine's hand-offs under ThreadSanitizer. They must be race-free, and must race
// if either end of a release-acquire pair is missing. On x86 the values are right even with a race,
// so only the detector finds a missing end.
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using ringsmith::testing::run_program;

namespace {

[[maybe_unused]] auto run(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {std::string(RINGSMITH_BINARY_DIR) + "/bin/ring_order"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(command, 120);
}

// | end             | without it                                        | seen in   |
// |-----------------|---------------------------------------------------|-----------|
// | tail_release    | a message is read before it is written            | ring      |
// | tail_acquire    | the same                                          | ring      |
// | head_release    | a slot is written while its message is still read | broadcast |
// | head_acquire    | the same                                          | broadcast |
// | arrival_release | a buffer is read before it is written             | direct    |
// | arrival_acquire | the same                                          | direct    |
// | report_release  | the host reads a report while a kernel writes it  | report    |
// | report_acquire  | the same                                          | report    |
//
// Only a broadcast shows a missing credit. In an all_reduce, the messages around the ring happen to
// order the same accesses. tail_release and head_release are the same fence; without one of them,
// its counter is stored before the fence (slots.cuh).
struct Row {
  const char *end, *kernel;
};
[[maybe_unused]] constexpr Row kTable[] = {
    {"tail_release", "ring"},           {"tail_acquire", "ring"},
    {"head_release", "broadcast"},      {"head_acquire", "broadcast"},
    {"arrival_release", "direct"},      {"arrival_acquire", "direct"},
    {"report_release", "report"},       {"report_acquire", "report"},
    {"tail_release", "ring_wide"},      {"tail_acquire", "ring_wide"},
    {"head_release", "broadcast_wide"}, {"head_acquire", "broadcast_wide"},
    {"tail_release", "ring_shared"},    {"tail_acquire", "ring_shared"},
};

}  // namespace

TEST_CASE("the kernel engine's kernels are free of races, for 2 to 4 ranks as threads",
          "[vgpu][tsan]") {
#ifdef RINGSMITH_TSAN_PROGRAMS
  for (const std::string kernel : {"ring", "ring_wide", "ring_shared", "packets", "broadcast",
                                   "broadcast_wide", "direct", "one_shot"})
    for (const std::string world : {"2", "3", "4"}) {
      const auto result = run({kernel, world});
      CAPTURE(kernel, world, result.out, result.err);
      CHECK(result.exit_code == 0);
      CHECK(result.out == "right sums\n");
      CHECK(result.err.empty());
    }
  const auto alone = run({"report", "2"});
  CAPTURE(alone.err);
  CHECK(alone.exit_code == 0);
  CHECK(alone.err.empty());
#else
  WARN("not run: this build has no ThreadSanitizer programs");
#endif
}

TEST_CASE("each end of each release and acquire pair, weakened to relaxed, is a reported race",
          "[vgpu][tsan]") {
#ifdef RINGSMITH_TSAN_PROGRAMS
  for (const auto& [end, kernel] : kTable) {
    const auto result = run({kernel, "3", end});
    CAPTURE(end, kernel, result.out, result.err.substr(0, 3000));
    CHECK(result.exit_code != 0);
    CHECK_THAT(result.err, ContainsSubstring("ThreadSanitizer: data race") &&
                               ContainsSubstring("runtime/comm/device/"));
  }
#else
  WARN("not run: this build has no ThreadSanitizer programs");
#endif
}
