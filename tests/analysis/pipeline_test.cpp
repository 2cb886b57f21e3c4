// Tests pipeline schedules: proofs of the built-in schedules, planted mistakes, and simulated
// times.
#include "runtime/analysis/pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

std::string first_fault(const PipelineSchedule& schedule,
                        const PipelineCheckOptions& options = {}) {
  const auto found = check(schedule, options);
  return found.empty() ? "" : found.front().describe();
}

}  // namespace

TEST_CASE("gpipe and 1f1b are proved, with the memory of their table", "[pipeline]") {
  for (int p = 1; p <= 8; ++p)
    for (const int m : {1, 2, 3, 4, 7, 16}) {
      INFO(p << " stages, " << m << " microbatches");
      CHECK(first_fault(gpipe(p, m), {.slots = {0, 1, 2, 8}, .most_stored = m}).empty());
      CHECK(first_fault(one_forward_one_backward(p, m),
                        {.slots = {1, 2, 8}, .most_stored = std::min(p, m)})
                .empty());
      const std::vector<int> all = most_stored(gpipe(p, m)),
                             few = most_stored(one_forward_one_backward(p, m));
      for (int s = 0; s < p; ++s) {
        CHECK(all[at(s)] == m);
        CHECK(few[at(s)] == std::min(m, p - s));
      }
    }
}

TEST_CASE("both schedules have the bubble (p - 1) / (m + p - 1)", "[pipeline]") {
  for (int p = 1; p <= 8; ++p)
    for (const int m : {1, 2, 3, 4, 7, 16})
      for (const auto& [forward, backward] : {std::pair{1.0, 1.0}, {1.0, 2.0}, {0.75, 1.5}})
        for (const char* name : {"gpipe", "1f1b"}) {
          INFO(name << ", " << p << " stages, " << m << " microbatches, " << forward << " and "
                    << backward << " s");
          const PipelineSimulation got =
              simulate(pipeline_schedule(name, p, m), {.forward = forward, .backward = backward});
          CHECK(got.seconds == (m + p - 1) * (forward + backward));
          CHECK(std::abs(got.bubble - ideal_bubble(p, m)) < 1e-12);
          CHECK(got.events.size() == static_cast<std::size_t>(2 * p * m));
        }
}

TEST_CASE("1f1b deadlocks if a send waits for its receive, gpipe does not", "[pipeline]") {
  for (int p = 2; p <= 6; ++p)
    for (const int m : {2, 4, 7}) {
      INFO(p << " stages, " << m << " microbatches");
      const auto found = check(one_forward_one_backward(p, m), {.slots = {0}});
      REQUIRE_FALSE(found.empty());
      CHECK(found.front().fault == Fault::deadlock);
      CHECK(check(gpipe(p, m), {.slots = {0}}).empty());
    }
  CHECK(first_fault(one_forward_one_backward(2, 2), {.slots = {0}}) ==
        "rank 0, step 1: deadlock: with 0 slots per connection, F1 waits until its result may be "
        "sent to stage 1");
}

TEST_CASE("the checker names planted mistakes", "[pipeline]") {
  const auto expect = [](const char* what, PipelineSchedule schedule, const auto& mistake,
                         const std::string& message, const PipelineCheckOptions& options = {}) {
    INFO(what);
    CHECK(first_fault(schedule, options).empty());
    mistake(schedule.actions);
    CHECK(first_fault(schedule, options) == message);
  };
  using Actions = std::vector<std::vector<StageAction>>;
  constexpr PipelinePass F = PipelinePass::forward, B = PipelinePass::backward;
  expect(
      "a stage too few", gpipe(3, 2), [](Actions& a) { a.pop_back(); },
      "shape: 3 stages and 2 microbatches, but actions for 2 stages");
  expect(
      "no such microbatch", gpipe(2, 2), [](Actions& a) { a[1][0].microbatch = 2; },
      "rank 1, step 0: shape: F2 is no pass of 2 microbatches");
  expect(
      "a backward is missing", gpipe(3, 3), [](Actions& a) { a[1].pop_back(); },
      "rank 1: missing contribution: B2 never runs");
  expect(
      "a forward runs twice", gpipe(2, 2),
      [](Actions& a) {
        a[0].push_back({1, F});
      },
      "rank 0, step 4: doubled: F1 runs twice");
  expect(
      "a backward before its forward", one_forward_one_backward(2, 3),
      [](Actions& a) { std::swap(a[1][2], a[1][3]); },
      "rank 1, step 2: undefined data: B1 runs before F1, whose activations it needs");
  expect(
      "neighbours in different order", gpipe(3, 3), [](Actions& a) { std::swap(a[1][0], a[1][1]); },
      "rank 1: unmatched receive: message 0 from stage 0 belongs to F0, but this stage runs F1 "
      "with it");
  expect(
      "gradients in different order", gpipe(2, 3), [](Actions& a) { std::swap(a[1][4], a[1][5]); },
      "rank 0: unmatched receive: message 1 from stage 1 belongs to B2, but this stage runs B1 "
      "with it");
  expect(
      "each stage waits for the other", gpipe(2, 2),
      [](Actions& a) {
        a[0] = {{0, F}, {0, B}, {1, F}, {1, B}};
      },
      "rank 0, step 1: deadlock: with 1 slot per connection, B0 waits for a message of stage 1");
  expect("too many microbatches stored", one_forward_one_backward(2, 4),
         [](Actions& a) { a = gpipe(2, 4).actions; },
         "rank 0: memory: stores the activations of 4 microbatches, more than 2",
         {.most_stored = 2});
}

TEST_CASE("the simulator finishes a schedule exactly if the checker finds no deadlock",
          "[pipeline]") {
  std::mt19937 random(1);
  int stuck = 0, finished = 0;
  for (int i = 0; i < 3000; ++i) {
    const int p = 2 + static_cast<int>(random() % 3), m = 2 + static_cast<int>(random() % 4);
    PipelineSchedule schedule = one_forward_one_backward(p, m);
    for (unsigned swaps = 1 + random() % 4; swaps > 0; --swaps) {
      auto& actions = schedule.actions[random() % schedule.actions.size()];
      const std::size_t a = random() % (actions.size() - 1);
      if (actions[a].pass != actions[a + 1].pass) std::swap(actions[a], actions[a + 1]);
    }
    const int slots = 1 + static_cast<int>(random() % 2);
    const auto faults = check(schedule, {.slots = {slots}});
    if (!faults.empty() && faults.front().fault != Fault::deadlock) continue;  // an earlier part
    bool ends = true;
    try {
      (void)simulate(schedule, {.slots = slots});
    } catch (const UsageError&) {
      ends = false;
    }
    CHECK(ends == faults.empty());
    ++(ends ? finished : stuck);
  }
  CHECK(stuck > 100);
  CHECK(finished > 100);
}

TEST_CASE("a pipeline's messages cost alpha and beta, and overlap with computation", "[pipeline]") {
  const PipelineCost cost{.forward = 2, .backward = 4, .link = {0.5, 0.125}, .bytes = 4};
  // One microbatch: nothing overlaps. Each of the two messages takes 0.5 + 4 / 8 = 1 s.
  CHECK(simulate(gpipe(2, 1), cost).seconds == 2 + 1 + 2 + 4 + 1 + 4);
  // Two microbatches. The activation of F1 travels while stage 1 runs F0:
  //   stage 0   F0 0-2  F1 2-4                    B0 12-16  B1 16-20
  //   stage 1           F0 3-5  F1 5-7  B0 7-11   B1 11-15
  CHECK(simulate(gpipe(2, 2), cost).seconds == 20);
  // Slow links: the second activation waits until the first has left the sender.
  const PipelineCost slow{.forward = 1, .backward = 1, .link = {0, 1}, .bytes = 3, .slots = 2};
  //   stage 0   F0 0-1  F1 1-2                                   B0 9-10  B1 12-13
  //   channel           act 0 1-4, act 1 4-7      grad 0 6-.. after F1 7-8: B0 8-9
  //   stage 1                  F0 4-5   F1 7-8  B0 8-9  B1 9-10;   grad 0 9-12, grad 1 12-15
  CHECK(simulate(gpipe(2, 2), slow).seconds == 16);
}

TEST_CASE("draw() draws the pictures of the header", "[pipeline]") {
  CHECK(draw(gpipe(3, 4)) ==
        "stage 0  F0 F1 F2 F3  .  .  .  . B0 B1 B2 B3\n"
        "stage 1   . F0 F1 F2 F3  .  . B0 B1 B2 B3  .\n"
        "stage 2   .  . F0 F1 F2 F3 B0 B1 B2 B3  .  .\n");
  CHECK(draw(one_forward_one_backward(3, 4)) ==
        "stage 0  F0 F1 F2  .  . B0 F3 B1  . B2  . B3\n"
        "stage 1   . F0 F1  . B0 F2 B1 F3 B2  . B3  .\n"
        "stage 2   .  . F0 B0 F1 B1 F2 B2 F3 B3  .  .\n");
}

TEST_CASE("pipeline schedules reject impossible arguments in one line", "[pipeline]") {
  const auto complaint = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const UsageError& e) {
      return e.what();
    }
    return {};
  };
  CHECK(complaint([] { (void)gpipe(0, 1); }) ==
        "gpipe: a pipeline needs at least one stage, got 0");
  CHECK(complaint([] { (void)one_forward_one_backward(2, 0); }) ==
        "1f1b: a pipeline needs at least one microbatch, got 0");
  CHECK(complaint([] { (void)pipeline_schedule("zero", 2, 2); }) ==
        "'zero' is not a pipeline schedule; choose gpipe or 1f1b");
  CHECK(complaint([] { (void)simulate(gpipe(2, 2), {.slots = 0}); }) ==
        "simulate: a connection needs at least one slot, got 0");
  PipelineSchedule stuck = gpipe(2, 2);
  stuck.actions[0] = {{0, PipelinePass::forward},
                      {0, PipelinePass::backward},
                      {1, PipelinePass::forward},
                      {1, PipelinePass::backward}};
  CHECK(complaint([&] { (void)simulate(stuck); }) ==
        "simulate: stage 0 of the pipeline never finishes; check() says why");
}
