#include "runtime/analysis/checker.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/comm/schedule/tree.hpp"
#include "tests/comm/built_in.hpp"
#include "tests/comm/reference_executor.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;
using ringsmith::comm::testing::for_each_built_in;

namespace {

std::string all_of(const std::vector<Violation>& findings) {
  std::string out;
  for (const Violation& finding : findings) out += finding.describe() + "\n";
  return out;
}

Step& step_of(Schedule& schedule, int rank, int step) {
  return schedule.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
}

}  // namespace

TEST_CASE("every built-in schedule is proved: worlds 1 to 8, counts 0 to 3N+1, 1, 2 and 8 slots",
          "[checker]") {
  int proved = 0;
  for_each_built_in([&](const Schedule& schedule) {
    const auto findings = check(schedule);
    if (!findings.empty())
      FAIL(name_of(schedule.algorithm)
           << " " << name_of(schedule.collective) << " world " << schedule.world << " count "
           << schedule.count << " root " << schedule.root << "\n"
           << all_of(findings));
    ++proved;
  });
  REQUIRE(proved > 3000);
}

TEST_CASE("every built-in schedule but two also runs with messages larger than the slots",
          "[checker]") {
  for_each_built_in([](const Schedule& schedule) {
    const bool proved = check(schedule, {{{0, true}}}).empty();
    const bool needs_slots =
        schedule.algorithm == Algorithm::one_shot || schedule.algorithm == Algorithm::double_tree;
    REQUIRE(proved == (!needs_slots || schedule.world == 1));
  });
}

TEST_CASE("when everyone sends first, rendezvous deadlocks and one slot does not", "[checker]") {
  for (int world = 2; world <= 8; ++world) {
    const Schedule ring = ring_all_reduce(world, 16);
    const auto findings = check(ring, {{{0, false}}});
    REQUIRE(findings.size() == 1);
    REQUIRE(findings[0].fault == Fault::deadlock);
    REQUIRE_THAT(findings[0].reason,
                 ContainsSubstring("with 0 slots") &&
                     ContainsSubstring("rank 1 at step 0 waits for a free slot"));
    REQUIRE(check(ring, {{{1, false}}}).empty());
    REQUIRE(check(tree_all_reduce(world, 16), {{{0, false}}}).empty());  // no cycle in a tree
  }
}

TEST_CASE("each kind of broken schedule is rejected with its own reason", "[checker]") {
  struct Mutation {
    const char* name;
    Schedule schedule;
    Fault fault;
    const char* reason;
  };
  std::vector<Mutation> mutations;
  const auto mutate = [&](const char* name, Schedule schedule, Fault fault, const char* reason,
                          const std::function<void(Schedule&)>& change) {
    REQUIRE(check(schedule).empty());
    change(schedule);
    mutations.push_back({name, std::move(schedule), fault, reason});
  };
  const Schedule ring = ring_all_reduce(4, 16), uneven = ring_all_reduce(4, 18);

  mutate("last chunk overruns", ring, Fault::chunk_outside,
         "chunk 3 ends at element 17 of a buffer of 16", [](Schedule& s) { ++s.chunks[3].count; });
  mutate("overlapping chunks", ring, Fault::chunk_overlap, "inside the chunk before it",
         [](Schedule& s) { ++s.chunks[1].count; });
  mutate("forgotten element", ring, Fault::chunk_gap, "elements 7 to 7 are in no chunk",
         [](Schedule& s) { --s.chunks[1].count; });
  mutate("self-send", ring, Fault::shape, "sends to itself",
         [](Schedule& s) { step_of(s, 2, 1).send_peer = 2; });
  mutate("peer that does not exist", ring, Fault::shape,
         "receives from rank 4, which does not exist",
         [](Schedule& s) { step_of(s, 0, 0).recv_peer = 4; });
  mutate("chunk that does not exist", ring, Fault::shape, "chunk 4 of 4",
         [](Schedule& s) { step_of(s, 0, 0).send_chunk = 4; });
  mutate("rank without steps", ring, Fault::shape, "a world of 4 has steps for 3 ranks",
         [](Schedule& s) { s.steps.pop_back(); });
  mutate("missing receive", ring, Fault::unmatched_send,
         "sends chunk 0 to rank 3, which never receives",
         [](Schedule& s) { step_of(s, 3, 5).recv_peer = kNobody; });
  mutate("missing send", ring, Fault::unmatched_receive,
         "waits for a message from rank 0 that is never sent",
         [](Schedule& s) { step_of(s, 0, 5).send_peer = kNobody; });
  mutate("dropped step", uneven, Fault::size_mismatch,
         "takes message 3 from rank 0 as chunk 0 of 5 elements, but it is chunk 3 of 4",
         [](Schedule& s) {
           auto& steps = s.steps[0];
           steps.erase(steps.begin() + 2);
         });
  mutate("swapped peers", ring, Fault::unmatched_send,
         "sends chunk 0 to rank 0, which never receives", [](Schedule& s) {
           Step& step = step_of(s, 1, 0);
           std::swap(step.send_peer, step.recv_peer);
         });
  mutate("receive before send", ring, Fault::deadlock, "waits for a message from rank",
         [](Schedule& s) {
           for (auto& steps : s.steps) {  // splits every step, the receive first
             std::vector<Step> cut;
             for (const Step& step : steps) {
               cut.push_back({kNobody, 0, step.recv_peer, step.recv_chunk, step.action});
               cut.push_back({step.send_peer, step.send_chunk, kNobody, 0, Action::copy});
             }
             steps = cut;
           }
         });
  mutate("two messages ahead", ring_all_reduce(2, 16), Fault::deadlock,
         "with 1 slot: rank 0 at step 1 waits for a free slot", [](Schedule& s) {
           for (auto& steps : s.steps) {  // all sends, then all receives
             std::vector<Step> sends, receives;
             for (const Step& step : steps) {
               sends.push_back({step.send_peer, step.send_chunk, kNobody, 0, Action::copy});
               receives.push_back({kNobody, 0, step.recv_peer, step.recv_chunk, step.action});
             }
             steps = sends;
             steps.insert(steps.end(), receives.begin(), receives.end());
           }
         });
  mutate("copy for reduce", ring, Fault::missing, "a copy overwrote it on rank 2 at step 1",
         [](Schedule& s) { step_of(s, 2, 1).action = Action::copy; });
  mutate("reduce for copy", ring, Fault::doubled,
         "chunk 0 holds more than once: rank 1's chunk 0, rank 2's chunk 0",
         [](Schedule& s) { step_of(s, 2, 4).action = Action::reduce; });
  mutate("doubled reduce", tree_all_reduce(4, 16), Fault::doubled,
         "chunk 0 holds more than once: rank 1's chunk 0", [](Schedule& s) {
           for (auto& steps : s.steps) steps.insert(steps.begin(), steps.front());
         });
  mutate("wrong chunk", ring, Fault::foreign,
         "holds data that does not belong there: rank 2's chunk 2",
         [](Schedule& s) { step_of(s, 2, 0).send_chunk = 2; });
  mutate("reordered steps", ring, Fault::missing, "lacks rank", [](Schedule& s) {
    for (auto& steps : s.steps) std::swap(steps[3], steps[4]);
  });
  mutate("wrong chunk owner", ring_reduce_scatter(4, 16), Fault::wrong_owner,
         "chunk 0 is complete on rank 3, but promised on rank 0", [](Schedule& s) {
           for (auto& steps : s.steps)
             for (Step& step : steps) {
               step.send_chunk = wrap(step.send_chunk + 1, 4);
               step.recv_chunk = wrap(step.recv_chunk + 1, 4);
             }
         });
  mutate("wrong root of a reduce", tree_reduce(4, 16, 1), Fault::wrong_owner,
         "complete on rank 1, but promised on rank 2", [](Schedule& s) { s.root = 2; });
  mutate("wrong root of a broadcast", tree_broadcast(4, 16, 1), Fault::undefined_data,
         "computed from memory that held no valid data", [](Schedule& s) { s.root = 2; });
  mutate("one step too many", ring, Fault::cost, "promises 6 steps, this takes 7",
         [](Schedule& s) { s.steps[0].emplace_back(); });
  mutate("bytes too many", tree_broadcast(2, 16, 0), Fault::cost, "elements sent in all",
         [](Schedule& s) {  // the leaf sends the value back, still in one step per rank
           step_of(s, 1, 0) = {kNobody, 0, 0, 0, Action::copy};
           s.algorithm = Algorithm::tree;
           s.collective = Collective::broadcast;
           step_of(s, 0, 0) = {1, 0, 1, 0, Action::copy};
           step_of(s, 1, 0).send_peer = kNobody;
           s.steps[1].push_back({0, 0, kNobody, 0, Action::copy});
         });

  std::set<std::string> reasons;
  for (const Mutation& mutation : mutations) {
    INFO(mutation.name);
    const auto findings = check(mutation.schedule);
    REQUIRE(!findings.empty());
    INFO(all_of(findings));
    const bool found = std::any_of(findings.begin(), findings.end(), [&](const Violation& finding) {
      return finding.fault == mutation.fault &&
             finding.reason.find(mutation.reason) != std::string::npos;
    });
    CHECK(found);
    reasons.insert(mutation.reason);
  }
  REQUIRE(reasons.size() == mutations.size());
}

TEST_CASE("the checker's verdict on random mutations is the verdict of running them", "[checker]") {
  // Makes random single changes. The reference executor, with distinct powers of two as inputs,
  // decides whether the result is right. The checker must neither miss a fault nor report a false
  // one.
  std::mt19937 engine(7);
  const auto pick = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
  int broken = 0, harmless = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const int world = 2 + pick(4);
    const Algorithm algorithms[] = {Algorithm::ring, Algorithm::direct, Algorithm::one_shot,
                                    Algorithm::tree};
    Schedule s = make_schedule(Collective::all_reduce, algorithms[pick(4)], world,
                               static_cast<std::size_t>(world));
    const int rank = pick(world);
    auto& steps = s.steps[static_cast<std::size_t>(rank)];
    const int where = pick(static_cast<int>(steps.size()));
    Step& step = steps[static_cast<std::size_t>(where)];
    const int chunks = static_cast<int>(s.chunks.size());
    switch (pick(6)) {
      case 0:
        step.action = step.action == Action::copy ? Action::reduce : Action::copy;
        break;
      case 1:
        step.send_chunk = pick(chunks);
        break;
      case 2:
        step.recv_chunk = pick(chunks);
        break;
      case 3:
        std::swap(step, steps[static_cast<std::size_t>(pick(static_cast<int>(steps.size())))]);
        break;
      case 4:
        step.recv_peer = wrap(rank + 1 + pick(world - 1), world);
        break;
      default:
        steps.erase(steps.begin() + where);
    }
    bool right = true;
    testing::Buffers inputs(static_cast<std::size_t>(world));
    for (std::size_t r = 0; r < inputs.size(); ++r)
      for (std::size_t i = 0; i < s.count; ++i)
        inputs[r].push_back(static_cast<float>(1 << (3 * r)) * (i % 2 == 0 ? 1.0f : -1.0f) +
                            static_cast<float>(i) * 65536.0f);
    float index_sum = 65536.0f * static_cast<float>(world), ones = 0;
    for (int r = 0; r < world; ++r) ones += static_cast<float>(1 << (3 * r));
    try {
      for (const auto& buffer : testing::execute(s, inputs))
        for (std::size_t i = 0; i < s.count; ++i)
          right =
              right && buffer[i] == (i % 2 == 0 ? ones : -ones) + static_cast<float>(i) * index_sum;
    } catch (const std::exception&) {
      right = false;  // a rank waits forever, or a message has the wrong length
    }
    auto findings = check(s, {{{}}});
    // The reference executor cannot detect two faults: a message that no rank receives, and a cost
    // that differs from the promised cost.
    findings.erase(std::remove_if(findings.begin(), findings.end(),
                                  [&](const Violation& f) { return f.fault == Fault::cost; }),
                   findings.end());
    const bool left_over =
        !findings.empty() && std::all_of(findings.begin(), findings.end(), [](const Violation& f) {
          return f.fault == Fault::unmatched_send;
        });
    if (left_over) continue;
    INFO("trial " << trial << " " << name_of(s.algorithm) << " world " << world << "\n"
                  << all_of(findings));
    REQUIRE(findings.empty() == right);
    (right ? harmless : broken) += 1;
  }
  REQUIRE(broken > 1000);
  REQUIRE(harmless > 100);
}
