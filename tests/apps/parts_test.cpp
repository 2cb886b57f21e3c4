// Tests parts of the training programs, where needed with simulated peers.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/files.hpp"
#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/options.hpp"
#include "labs/apps/train/run.hpp"
#include "labs/apps/train/step_time.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_group.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
using ringsmith::test::FakeGroup;

namespace {

template <class T>
void put(const comm::Buffer& output, std::size_t rank, T value) {
  reinterpret_cast<T*>(output.data())[rank] = value;
}

}  // namespace

TEST_CASE("a NaN on one rank stops all: rank 0 names that rank and the step, others are quiet",
          "[losses]") {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
    for (const int rank : {0, 1}) {
      FakeGroup group(3, rank);
      group.on_all_gather = [&](const comm::Buffer& out) { put(out, 2 * 2, bad); };
      LossExchange losses(group);
      losses.begin(1.0);
      if (rank == 0)
        REQUIRE_THROWS_WITH(losses.finish(17),
                            ContainsSubstring("at step 17 on rank 2") && ContainsSubstring("--lr"));
      else
        REQUIRE_THROWS_AS(losses.finish(17), QuietStop);
    }
}

TEST_CASE("of the errors of several ranks, the cause is reported") {
  const auto cause = std::make_exception_ptr(Error("the disk is full"));
  const auto timeout = std::make_exception_ptr(TimeoutError("waited"));
  const auto lost = std::make_exception_ptr(PeerLost("gone"));
  const auto aborted = std::make_exception_ptr(Aborted("ended"));
  const auto quiet = std::make_exception_ptr(QuietStop(ExitCode::usage));
  CHECK_NOTHROW(rethrow_cause({}));
  CHECK_NOTHROW(rethrow_cause({nullptr, nullptr}));
  for (const auto& other : {lost, aborted, quiet}) {
    CHECK_THROWS_WITH(rethrow_cause({other, nullptr, cause}), "the disk is full");
    CHECK_THROWS_WITH(rethrow_cause({timeout, other, cause}), "waited");
  }
  CHECK_THROWS_WITH(rethrow_cause({quiet, lost, aborted}), "gone");
  CHECK_THROWS_WITH(rethrow_cause({quiet, aborted, lost}), "ended");
  CHECK_THROWS_AS(rethrow_cause({nullptr, quiet}), QuietStop);
  CHECK_THROWS_AS(rethrow_cause({lost, std::make_exception_ptr(1)}), int);
}

TEST_CASE("the loss is the mean over the ranks, not this rank's", "[losses]") {
  FakeGroup group(4, 1);
  group.on_all_gather = [](const comm::Buffer& out) {
    for (std::size_t r : {0, 2, 3}) put(out, 2 * r, static_cast<double>(r));
  };
  LossExchange losses(group);
  losses.begin(10.0);
  REQUIRE(losses.finish(1) == 15.0 / 4);
  CHECK(losses.wish() == LossExchange::Wish::none);
}

TEST_CASE("one rank that wants to stop is heard by all, once", "[losses]") {
  for (const int asks : {0, 2}) {
    FakeGroup group(3, 0);
    bool now = true;
    group.on_all_gather = [&](const comm::Buffer& out) {
      if (now && asks == 2) put(out, 2 * 2 + 1, 2.0);
    };
    using Wish = LossExchange::Wish;
    LossExchange losses(group);
    losses.begin(1.0, asks == 0 ? Wish::stop : Wish::preempt);  // the stronger wish is reported
    CHECK(losses.finish(1) > 0);
    CHECK(losses.wish() == Wish::stop);
    now = false;
    losses.begin(1.0, Wish::preempt);
    CHECK(losses.finish(2) > 0);
    CHECK(losses.wish() == Wish::preempt);
    losses.begin(1.0);
    CHECK(losses.finish(3) > 0);
    CHECK(losses.wish() == Wish::none);
  }
}

TEST_CASE("an error on a peer stops this rank with that peer's exit code", "[agreement]") {
  FakeGroup group(3, 0);
  group.on_all_gather = [](const comm::Buffer& out) { put(out, 1, std::int32_t{6}); };
  try {
    together(group, [] {});
    FAIL("went on alone");
  } catch (const QuietStop& e) {
    REQUIRE(e.exit_code() == ExitCode::usage);
  }
}

TEST_CASE("of several ranks with errors the lowest one speaks", "[agreement]") {
  for (const int rank : {0, 1}) {
    FakeGroup group(2, rank);
    group.on_all_gather = [](const comm::Buffer& out) {
      put(out, 0, std::int32_t{6});
      put(out, 1, std::int32_t{6});
    };
    const auto fail = [&] { together(group, [] { throw UsageError("the file is empty"); }); };
    if (rank == 0)
      REQUIRE_THROWS_WITH(fail(), "the file is empty");
    else
      REQUIRE_THROWS_AS(fail(), QuietStop);
  }
}

TEST_CASE("a broken group is reported, not agreed upon through the broken group", "[agreement]") {
  FakeGroup group(2, 1);
  REQUIRE_THROWS_AS(together(group, [] { throw PeerLost("gone"); }), PeerLost);
  REQUIRE(group.log.empty());
}

TEST_CASE("a global batch must be shared evenly, and the error names the remedy", "[options]") {
  TrainOptions o;
  o.batch = 16;
  REQUIRE(batch_per_rank(o, 3) == 16);
  o.global_batch = 12;
  REQUIRE(batch_per_rank(o, 3) == 4);
  REQUIRE_THROWS_WITH(batch_per_rank(o, 5),
                      ContainsSubstring("--global-batch 12") && ContainsSubstring("multiple of 5"));
}

TEST_CASE("steps come from --epochs rounded up, from --steps, or from the default", "[options]") {
  TrainOptions o;
  REQUIRE(steps_of(o, 7, 100) == 100);
  o.steps = 3;
  REQUIRE(steps_of(o, 7, 100) == 3);
  o.steps = 0;
  o.epochs = 2;
  REQUIRE(steps_of(o, 7, 100) == 14);
  o.epochs = 0.5;
  REQUIRE(steps_of(o, 7, 100) == 4);
}

TEST_CASE("batches that some ranks began are dealt out to others: no sample twice, none left out",
          "[batches]") {
  struct Numbers : Dataset {
    [[nodiscard]] std::int64_t size() const override { return 100; }
    [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override {
      const Tensor t = from_vector(std::vector<std::int64_t>(indices.begin(), indices.end()));
      return {t, t};
    }
  };
  constexpr std::int64_t kGlobal = 12;
  const Numbers numbers;
  // Runs `steps` steps with `world` ranks from a state. Returns each step's samples over all ranks,
  // sorted, and the final state.
  const auto deal = [&](int world, const std::optional<SamplerState>& from, int steps,
                        int workers) {
    std::vector<std::vector<std::int64_t>> seen(static_cast<std::size_t>(steps));
    SamplerState end;
    for (int rank = 0; rank < world; ++rank) {
      const FakeGroup group(world, rank);
      Batches batches(numbers, group, kGlobal / world, 7, workers);
      CHECK(batches.per_epoch() == 100 / world / (kGlobal / world));
      if (from) batches.load_state(*from);
      for (auto& step : seen)
        for (const std::int64_t i : batches.next().inputs.to_vector<std::int64_t>())
          step.push_back(i);
      end = batches.state();
    }
    for (auto& step : seen) std::ranges::sort(step);
    return std::pair(seen, end);
  };
  const auto whole = deal(1, {}, 20, 0).first;  // 8 batches in an epoch
  for (const int before : {1, 2, 3, 4})
    for (const int after : {1, 2, 3, 4, 6})
      for (const int steps : {0, 1, 5, 8, 11}) {
        INFO(before << " ranks for " << steps << " steps, then " << after);
        const auto [first, state] = deal(before, {}, steps, after % 2);
        CHECK(state.epoch == (steps == 0 ? 0 : (steps - 1) / 8));
        auto all = first;
        const auto rest = deal(after, state, 20 - steps, before % 2).first;
        all.insert(all.end(), rest.begin(), rest.end());
        CHECK(all == whole);
      }
}

TEST_CASE("the default text is this repository's sources, in an order of their own", "[text]") {
  const auto paths = list_sources(find_source_root());
  REQUIRE(std::is_sorted(paths.begin(), paths.end()));
  REQUIRE(std::any_of(paths.begin(), paths.end(), [](const std::string& p) {
    return std::filesystem::path(p).filename() == "parts_test.cpp";
  }));
  REQUIRE_THROWS_WITH(list_sources("/proc/self/fdinfo"), ContainsSubstring("--data"));
}

TEST_CASE("step times add up, and the trace keeps whole steps within its bound", "[step_clock]") {
  (void)trace::drain();
  StepClock clock(true);
  std::uint64_t recorded = 0;
  const std::int64_t kSpans = 5000;
  for (std::int64_t step = 1; step <= 30; ++step) {
    clock.begin();
    const std::int64_t begin = trace::now_ns();
    while (trace::now_ns() < begin + 50'000) {
    }
    const std::int64_t middle = trace::now_ns();
    for (std::int64_t i = 1; i < kSpans; ++i)
      trace::record("x", trace::Category::frame, begin, middle);
    trace::record("forward", trace::Category::compute, begin, middle);
    const auto t = clock.end(step);
    recorded += kSpans + 1;
    REQUIRE(t.forward == middle - begin);
    REQUIRE(t.step >= t.forward);
  }
  REQUIRE(clock.steps() == 30);
  REQUIRE(clock.events().size() <= StepClock::kKeptEvents);
  REQUIRE(clock.events().size() % (kSpans + 1) == 0);
  REQUIRE(clock.events().size() + clock.lost() - trace::dropped() == recorded);
}

TEST_CASE("without tracing a step still has its length", "[step_clock]") {
  StepClock clock(false);
  clock.begin();
  const auto t = clock.end(1);
  REQUIRE(t.step > 0);
  REQUIRE(clock.events().empty());
}

TEST_CASE("a part of a step waits for the device neither at its end nor for the loss",
          "[.][on_devices]") {
  const Device device = Device::cuda(0);
  const Tensor loss = full({1}, 2.0).to(device);
  // Allocating a pinned block may wait for the device, so this call leaves a block in the cache.
  (void)Fetch(data_of(loss), device, Bytes(sizeof(float))).wait();
  for (const bool spans : {true, false}) {
    FakeGroup group(2, 1);
    TrainOptions options;
    options.no_trace = !spans;
    TrainingRun run(group, options);
    run.start({.steps = 1, .device = device});
    // If this thread waits for the device after all, the gate opens after 10 s, and `late` is set.
    bool late = false;
    std::promise<void> queued;
    test::Gate gate(Stream::current(device));
    std::thread impatience([&] {
      late = queued.get_future().wait_for(std::chrono::seconds(10)) != std::future_status::ready;
      gate.open();
    });
    (void)run.begin_step();
    run.fetched();
    run.forward_done();
    StepLoss sum;
    sum.add(loss);
    run.backward_done();
    queued.set_value();
    impatience.join();
    INFO((spans ? "with spans" : "without spans"));
    CHECK_FALSE(late);
  }
}
