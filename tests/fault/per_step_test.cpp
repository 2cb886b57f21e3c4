// Ranks are killed at every moment of a training step. The others continue and agree bit for bit,
// no sample is used twice in an epoch, and the same history gives the same bits.
#include "runtime/parallel/beyond/per_step.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <set>

#include "runtime/base/error.hpp"
#include "tests/fault/per_step_job.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

PerStepPlan plan_of(std::vector<Kill> kills, int world = 3) {
  PerStepPlan plan;
  plan.world = world;
  plan.kills = std::move(kills);
  plan.group.transport = test_transport();
  plan.group.timeout = std::chrono::seconds(20);
  return plan;
}

// Returns the counted steps in order, as recorded by their members.
std::vector<CountedStep> history_of(const PerStepResult& result) {
  std::map<std::int64_t, CountedStep> steps;
  for (const auto& of_rank : result.steps)
    for (CountedStep step : of_rank) {
      step.samples.clear();
      steps.emplace(step.step, step);
    }
  std::vector<CountedStep> out;
  for (auto& [number, step] : steps) out.push_back(step);
  return out;
}

// Checks that each step has the samples of all its contributors, and that no sample occurs twice in
// an epoch. A rank that is killed when a step has counted does not report its samples.
void check_samples(const PerStepPlan& plan, const PerStepResult& result) {
  std::map<std::int64_t, std::vector<std::int64_t>> by_step;
  std::map<std::int64_t, int> reports;
  for (const auto& of_rank : result.steps)
    for (const CountedStep& step : of_rank) {
      by_step[step.step].insert(by_step[step.step].end(), step.samples.begin(), step.samples.end());
      ++reports[step.step];
    }
  std::set<std::int64_t> of_epoch;
  std::int64_t used = 0;
  for (const CountedStep& step : history_of(result)) {
    const auto ranks = std::ssize(step.ranks);
    const std::int64_t batch = (ranks - step.joining) * kPerStepBatch;
    INFO("step " << step.step);
    if (used + batch > kPerStepSamples) {
      of_epoch.clear();
      used = 0;
    }
    const std::int64_t taken = batch * std::min(plan.accumulate, (kPerStepSamples - used) / batch);
    used += taken;
    if (reports[step.step] == ranks) CHECK(std::ssize(by_step[step.step]) == taken);
    for (const std::int64_t sample : by_step[step.step]) CHECK(of_epoch.insert(sample).second);
  }
}

void check(const PerStepPlan& plan, const PerStepResult& result) {
  for (std::size_t r = 0; r < result.codes.size(); ++r) {
    INFO("rank " << r << ": " << result.errors[r]);
    const auto own = std::ranges::find(plan.kills, static_cast<int>(r), &Kill::rank);
    const bool gone = own != plan.kills.end() && !own->returns;
    CHECK(result.codes[r] == (gone ? 128 + SIGKILL : 0));
    CHECK(result.errors[r].empty());
    CHECK(result.processes[r] == 1 + std::ranges::count_if(plan.kills, [&](const Kill& k) {
                                   return k.rank == static_cast<int>(r) && k.returns;
                                 }));
  }
  const auto history = history_of(result);
  REQUIRE(std::ssize(history) == plan.steps - plan.begin);
  for (const auto& of_rank : result.steps)
    for (CountedStep step : of_rank) {
      step.samples.clear();
      INFO("step " << step.step);
      CHECK(step == history[static_cast<std::size_t>(step.step - plan.begin)]);
    }
  check_samples(plan, result);
  // The surviving ranks' parameters must be bit-identical, and equal the serial run's up to
  // rounding.
  const std::vector<float> serial = run_serially(plan, history);
  const std::vector<float>* first = nullptr;
  for (std::size_t r = 0; r < result.codes.size(); ++r) {
    if (result.codes[r] != 0) continue;
    INFO("rank " << r);
    const std::vector<float>& mine = result.parameters[r];
    REQUIRE(serial.size() == mine.size());
    if (first == nullptr) first = &mine;
    CHECK(mine == *first);
    double worst = 0;
    for (std::size_t i = 0; i < serial.size(); ++i) {
      const double apart = std::abs(static_cast<double>(serial[i]) - mine[i]);
      REQUIRE(std::isfinite(apart));
      worst = std::max(worst, apart);
    }
    CHECK(worst < 1e-5);
  }
}

}  // namespace

TEST_CASE("nobody is lost: no step fails, the quorum stays", "[per_step]") {
  const int world = GENERATE(1, 2, 3, 5);
  PerStepPlan plan = plan_of({}, world);
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  CHECK(result.failed == 0);
  for (const CountedStep& step : history_of(result)) CHECK(step.quorum == 1);
}

TEST_CASE("a rank is killed at any moment: the others do the step, it returns with their bits",
          "[per_step]") {
  const Death death = GENERATE(Death::forward, Death::reducing, Death::voting, Death::counted);
  const int rank = GENERATE(0, 2);
  CAPTURE(static_cast<int>(death), rank);
  PerStepPlan plan = plan_of({{rank, 3, death}});
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  const auto history = history_of(result);
  const std::size_t lost_in = death == Death::counted ? 4 : 3;
  CHECK(history[lost_in - 1].ranks == std::vector{0, 1, 2});
  CHECK(history[lost_in].ranks == (rank == 0 ? std::vector{1, 2} : std::vector{0, 1}));
  CHECK(history[lost_in + 1].ranks == (rank == 0 ? std::vector{1, 2, 0} : std::vector{0, 1, 2}));
  CHECK(history[lost_in + 1].joining == 1);
  CHECK(history[lost_in + 2].joining == 0);
  CHECK(result.failed == 2);  // one failed try on each of the two survivors
}

TEST_CASE("communication fails on one rank, and nobody is lost: all do the step again",
          "[per_step]") {
  const auto [death, step] = GENERATE(std::pair{Death::meeting, 0}, std::pair{Death::forward, 3},
                                      std::pair{Death::reducing, 3}, std::pair{Death::voting, 3});
  const int rank = GENERATE(0, 2);
  CAPTURE(static_cast<int>(death), rank);
  PerStepPlan plan = plan_of({});
  plan.troubles = {{rank, step, death}};
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  CHECK(result.failed == 3);
  for (const CountedStep& s : history_of(result)) {
    CHECK(s.ranks == std::vector{0, 1, 2});
    CHECK(s.quorum == (s.step < step ? 1 : 2));
  }
}

TEST_CASE("a rank is killed while the next quorum meets, sends the state, or receives it",
          "[per_step]") {
  // Rank 2 is lost in step 2 and joins with step 3, in which rank 0, or rank 2 again, is killed.
  const Death death = GENERATE(Death::meeting, Death::sending, Death::receiving);
  const int rank = death == Death::receiving ? 2 : 0;
  CAPTURE(static_cast<int>(death));
  PerStepPlan plan = plan_of({{2, 2, Death::forward}, {rank, 3, death, death == Death::receiving}});
  if (death == Death::receiving) plan.steps = 9;
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
}

TEST_CASE("several batches in a step: a rank that joins sends zeros once in it", "[per_step]") {
  PerStepPlan plan = plan_of({{1, 2, Death::reducing}, {0, 5, Death::forward}});
  plan.accumulate = 3;
  plan.steps = 10;
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
}

TEST_CASE("scaled losses: all ranks skip the same steps, also one that joins in such a step",
          "[per_step]") {
  PerStepPlan plan = plan_of({{1, 2, Death::reducing}, {0, 5, Death::forward}});
  plan.accumulate = GENERATE(1, 2);
  plan.steps = 10;
  // Gradients overflow in steps 0 and 1, whose order of gradients must not be used; in step 3, with
  // which rank 1 joins; and in step 5, in which rank 0 is lost.
  plan.overflows = {0, 1, 3, 5};
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  CHECK(history_of(result)[3].joining == 1);
}

TEST_CASE("a training that continues an earlier one: who joins counts from the same step",
          "[per_step]") {
  PerStepPlan plan = plan_of({{1, 102, Death::reducing}, {0, 105, Death::counted}});
  plan.begin = 100;
  plan.steps = 110;
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  CHECK(history_of(result).front().step == 100);
}

TEST_CASE("ranks that begin with different states say so, and make no step", "[per_step]") {
  PerStepPlan plan = plan_of({});
  plan.begin = 20;
  plan.steps = 30;
  plan.odd = GENERATE(0, 2);
  plan.least = 3;
  plan.patience = std::chrono::milliseconds(500);
  const PerStepResult result = run_per_step(plan);
  CHECK(history_of(result).empty());
  int said = 0;
  for (const std::string& error : result.errors) {
    if (error.find("the checkpoint to continue from is ") == std::string::npos) continue;
    ++said;
    CHECK_THAT(error, ContainsSubstring("A on rank") && ContainsSubstring("B on rank"));
  }
  CHECK(said >= 1);
}

TEST_CASE("a rank is asked to stop: all finish after the same step, also one that has just come",
          "[per_step]") {
  // If somebody_joins, rank 1 is lost in step 3, and asks to join before the others complete that
  // step.
  const bool somebody_joins = GENERATE(false, true);
  PerStepPlan plan =
      plan_of(somebody_joins ? std::vector<Kill>{{1, 3, Death::reducing}} : std::vector<Kill>{});
  plan.stop = Kill{.rank = 2, .step = 3};
  plan.steps = 50;
  const PerStepResult result = run_per_step(plan);
  plan.steps = 4;
  check(plan, result);
}

TEST_CASE("the same history gives the same bits", "[per_step]") {
  PerStepPlan plan =
      plan_of({{1, 2, Death::reducing}, {0, 5, Death::voting}, {2, 7, Death::forward}}, 4);
  plan.steps = 11;
  const auto first = history_of(run_per_step(plan)), second = history_of(run_per_step(plan));
  CHECK(first == second);
  plan.kills.pop_back();  // another history gives other bits
  const auto other = history_of(run_per_step(plan));
  CHECK(other[6].digest == first[6].digest);
  CHECK(other[8].digest != first[8].digest);
}

TEST_CASE("on devices: killed, returned, the same bits on all", "[per_step_cuda]") {
  PerStepPlan plan = plan_of({{0, 2, Death::reducing}}, 2);
  plan.steps = 5;
  plan.group.device = Device::cuda(0);
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
}

TEST_CASE("two are killed at once", "[per_step]") {
  PerStepPlan plan = plan_of({{1, 3, Death::forward}, {2, 3, Death::forward}});
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  const auto history = history_of(result);
  CHECK(history[3].ranks == std::vector{0});
  CHECK(history[4].ranks == std::vector{0, 1, 2});
  CHECK(history[4].joining == 2);
}

TEST_CASE("who does not return is done without, to the end", "[per_step]") {
  PerStepPlan plan = plan_of({{1, 3, Death::reducing, false}});
  const PerStepResult result = run_per_step(plan);
  check(plan, result);
  for (const CountedStep& step : history_of(result))
    CHECK(step.ranks == (step.step < 3 ? std::vector{0, 1, 2} : std::vector{0, 2}));
}

TEST_CASE("too few are left, and nobody comes: one line, with the names", "[per_step]") {
  PerStepPlan plan = plan_of({{1, 3, Death::forward, false}, {2, 3, Death::forward, false}});
  plan.least = 2;
  plan.patience = std::chrono::milliseconds(500);
  const PerStepResult result = run_per_step(plan);
  CHECK(result.codes[0] == static_cast<int>(ExitCode::timeout));
  CHECK_THAT(result.errors[0],
             ContainsSubstring("only 1 of 3 ranks are present, 2 are needed (--min-ranks)") &&
                 ContainsSubstring("ranks 1, 2 are missing"));
  CHECK(std::ranges::count(result.errors[0], '\n') == 1);
  CHECK(history_of(result).size() == 3);
}
