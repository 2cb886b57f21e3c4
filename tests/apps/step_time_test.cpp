// The results of these traces were computed by hand.
#include "labs/apps/train/step_time.hpp"

#include <algorithm>
#include <random>

#include "labs/apps/train/trace_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/transport/peers.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
using trace::Category;
using trace::FinishedSpan;

namespace {

FinishedSpan event(const char* name, Category c, std::int64_t begin, std::int64_t end,
                   int thread = 0) {
  return {name, begin, end, {}, thread, c};
}

constexpr int kMain = 0, kComm = 1;

}  // namespace

TEST_CASE("set operations on intervals agree with a bitmap", "[intervals]") {
  std::mt19937 random(7);
  constexpr int kSize = 40;
  const auto draw = [&] {
    std::vector<Interval> out;
    for (unsigned n = random() % 6; n > 0; --n)
      out.push_back({static_cast<int>(random() % kSize), static_cast<int>(random() % kSize)});
    return out;
  };
  const auto bitmap = [](const std::vector<Interval>& v) {
    std::vector<bool> bits(kSize);
    for (const Interval i : v)
      for (auto t = i.begin; t < i.end; ++t) bits[static_cast<std::size_t>(t)] = true;
    return bits;
  };
  for (int round = 0; round < 2000; ++round) {
    const auto a = draw(), b = draw();
    const Interval window{static_cast<int>(random() % kSize), static_cast<int>(random() % kSize)};
    const auto bits_a = bitmap(a), bits_b = bitmap(b);
    std::vector<bool> minus(kSize), inside(kSize);
    for (std::size_t t = 0; t < kSize; ++t) {
      minus[t] = bits_a[t] && !bits_b[t];
      const auto s = static_cast<std::int64_t>(t);
      inside[t] = bits_a[t] && window.begin <= s && s < window.end;
    }
    const Intervals ua = unite(a), ub = unite(b);
    REQUIRE(bitmap(ua) == bits_a);
    REQUIRE(bitmap(subtract(ua, ub)) == minus);
    REQUIRE(bitmap(clip(ua, window)) == inside);
    REQUIRE(unite(ua) == ua);
    REQUIRE(length(ua) == std::count(bits_a.begin(), bits_a.end(), true));
  }
}

TEST_CASE("operations inside a step change nothing of its times", "[overlap]") {
  std::vector<FinishedSpan> events = {event("backward", Category::compute, 0, 100, kMain),
                                      event("all_reduce", Category::comm, 50, 120, kComm)};
  const StepTime without = measure(events, {0, 120});
  for (const int thread : {kMain, kComm, 2})
    events.push_back(event("LinearBackward", Category::operation, 90, 119, thread));
  const StepTime with = measure(events, {0, 120});
  for (const auto time : kStepTimes) CHECK(with.*time == without.*time);
}

TEST_CASE("waits for ranks of other nodes are told from those within the node", "[overlap]") {
  const auto t = measure({event("all_reduce", Category::comm, 0, 100, kComm),
                          event(comm::kWaitWithinNode, Category::wait, 5, 15, kComm),
                          event(comm::kWaitBetweenNodes, Category::wait, 20, 50, kComm),
                          event(comm::kWaitBetweenNodes, Category::wait, 40, 60, 2),
                          event(comm::kWaitBetweenNodes, Category::wait, 90, 130, kComm)},
                         {0, 100});
  CHECK(t.comm == 100);
  CHECK(t.exposed == 100);
  CHECK(t.wait_within == 10);
  CHECK(t.wait_between == 40 + 10);
}

TEST_CASE("a serialised run scores no overlap", "[overlap]") {
  // 100 ms of backward, then 20 ms of communication: (backward - comm) / backward would say 80 %.
  const auto t = measure({event("backward", Category::compute, 0, 100, kMain),
                          event("all_reduce", Category::comm, 100, 120, kComm)},
                         {0, 120});
  REQUIRE(t.comm == 20);
  REQUIRE(t.exposed == 20);
  REQUIRE(t.hidden_fraction() == 0.0);
  REQUIRE(t.tail == 20);
}

TEST_CASE("a backward span that contains its wait does not hide the communication waited for",
          "[overlap]") {
  const auto t = measure({event("backward", Category::compute, 0, 120, kMain),
                          event("wait", Category::wait, 100, 120, kMain),
                          event("all_reduce", Category::comm, 100, 120, kComm)},
                         {0, 120});
  REQUIRE(t.exposed == 20);
  REQUIRE(t.hidden_fraction() == 0.0);
  REQUIRE(t.backward == 100);
  REQUIRE(t.tail == 20);
}

TEST_CASE("communication on the computing thread itself is never hidden by it", "[overlap]") {
  const auto t = measure({event("backward", Category::compute, 0, 120, kMain),
                          event("all_reduce", Category::comm, 50, 70, kMain)},
                         {0, 120});
  REQUIRE(t.exposed == 20);
  REQUIRE(t.backward == 100);
}

TEST_CASE("a perfectly hidden run scores full overlap", "[overlap]") {
  // 100 ms of both: (backward - comm) / backward would say 0 %.
  const auto t = measure({event("backward", Category::compute, 0, 100, kMain),
                          event("all_reduce", Category::comm, 0, 100, kComm)},
                         {0, 100});
  REQUIRE(t.exposed == 0);
  REQUIRE(t.hidden_fraction() == 1.0);
  REQUIRE(t.tail == 0);
}

TEST_CASE("partial overlap, overlapping collectives and a window count each instant once",
          "[overlap]") {
  // backward 10..60 waits from 50 on; collectives 30..45, 40..55 (union 25) and 58..70.
  const auto t =
      measure({event("forward", Category::compute, 0, 10, kMain),
               event("backward", Category::compute, 10, 60, kMain),
               event("wait", Category::wait, 50, 60, kMain), event("a", Category::comm, 30, 45, 1),
               event("b", Category::comm, 40, 55, 2), event("c", Category::comm, 58, 70, 1),
               event("adamw", Category::optim, 60, 66, kMain),
               event("batch", Category::data, 66, 69, kMain)},
              {0, 68});
  REQUIRE(t.forward == 10);
  REQUIRE(t.backward == 40);
  REQUIRE(t.comm == 25 + 10);
  // exposed: 50..55 and 58..60 while backward waits, 66..68 after the optimizer's end.
  REQUIRE(t.exposed == 5 + 2 + 2);
  REQUIRE(t.tail == 68 - 50);
  REQUIRE(t.optim == 6);
  REQUIRE(t.data == 2);
  REQUIRE(t.step == 68);
}

TEST_CASE("compute that goes on in another thread hides a wait in this one", "[overlap]") {
  const auto t = measure(
      {event("backward", Category::compute, 0, 50, 0), event("wait", Category::wait, 20, 50, 0),
       event("backward", Category::compute, 0, 40, 2),
       event("all_reduce", Category::comm, 20, 50, 1)},
      {0, 50});
  REQUIRE(t.exposed == 10);
}

TEST_CASE("no communication: nothing exposed, no division by zero", "[overlap]") {
  const auto t = measure({event("forward", Category::compute, 0, 10)}, {0, 10});
  REQUIRE(t.exposed == 0);
  REQUIRE(t.hidden_fraction() == 0.0);
  REQUIRE(measure({}, {0, 0}).step == 0);
}

TEST_CASE("clock offset: the shortest trip decides, and its bound holds the truth", "[clock]") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t truth = static_cast<std::int64_t>(random() % 2'000'000) - 1'000'000;
    std::vector<ClockSample> samples;
    std::int64_t now = 1'000'000'000'000'000'000;
    for (int i = 0; i < 20; ++i) {
      const std::int64_t there = 500 + random() % 50'000, back = 500 + random() % 50'000;
      samples.push_back({now, now + there + truth, now + there + back});
      now += 100'000;
    }
    const ClockOffset got = estimate_offset(samples);
    REQUIRE(std::abs(got.offset_ns - truth) <= got.uncertainty_ns);
    REQUIRE(got.uncertainty_ns <= 50'500);
    if (std::abs(truth) > 2 * got.uncertainty_ns) REQUIRE_FALSE(got.may_be_zero());
  }
  REQUIRE(estimate_offset({{10, 15, 20}}).may_be_zero());
  REQUIRE_THROWS_AS(estimate_offset({}), UsageError);
  REQUIRE_THROWS_AS(estimate_offset({{5, 5, 4}}), UsageError);
}

TEST_CASE("trace JSON keeps nanoseconds, subtracts the clock offset and quotes names",
          "[trace_json]") {
  RankTrace t;
  t.rank = 3;
  t.origin_ns = 1'000'000'000'000'000'000;  // a double would lose the low digits
  t.clock_offset_ns = 5'000;
  t.thread_names = {"main \"thread\""};
  t.events = {
      {"all_reduce", t.origin_ns + 12'001, t.origin_ns + 14'501, {"bytes", 64}, 0, Category::comm}};
  const std::string json = chrome_trace({chrome_events(t)}, {{"world", "1"}});
  REQUIRE_THAT(json, ContainsSubstring("\"ts\":7.001,\"dur\":2.500"));
  REQUIRE_THAT(json, ContainsSubstring("\"pid\":3"));
  REQUIRE_THAT(json, ContainsSubstring("main \\\"thread\\\""));
  REQUIRE_THAT(json, ContainsSubstring("\"args\":{\"bytes\":64}"));
  REQUIRE_THAT(json, ContainsSubstring("\"world\":\"1\""));
}
