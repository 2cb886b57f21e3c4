// Tests the process group with ranks as threads, also under ThreadSanitizer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <malloc.h>
#include <numeric>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// A buffer in communication memory or on the heap, filled with rank + i.
struct Data {
  Data(ProcessGroup& g, bool own, std::size_t n) : heap(own ? 0 : n) {
    if (own) memory = g.allocate(Bytes(n * sizeof(float)));
    values = own ? memory->as<float>() : std::span<float>(heap);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = static_cast<float>(g.rank()) + static_cast<float>(i % 64);
  }
  [[nodiscard]] std::size_t wrong_sums(int world) const {
    std::size_t bad = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      bad += values[i] != static_cast<float>(world * (world - 1) / 2) +
                              static_cast<float>(world) * static_cast<float>(i % 64)
                 ? 1
                 : 0;
    return bad;
  }
  std::vector<float> heap;
  std::shared_ptr<CommMemory> memory;
  std::span<float> values;
};

}  // namespace

TEST_CASE("threads as ranks: all_reduce is right on every executor and algorithm", "[group]") {
  for (const int world : {1, 2, 3, 4})
    for (const bool own : {false, true})
      for (const auto algorithm : {Algorithm::automatic, Algorithm::ring, Algorithm::plain_ring,
                                   Algorithm::gloo_ring, Algorithm::direct, Algorithm::tree}) {
        const auto wrong = run_threads<std::size_t>(world, [&](ProcessGroup& g) {
          g.set_algorithm(algorithm);
          std::size_t bad = 0;
          for (const std::size_t n : {1, 100, 5000, 100'003}) {
            Data data(g, own, n);
            g.all_reduce(data.values);
            bad += data.wrong_sums(g.size());
          }
          return bad;
        });
        INFO("world " << world << ' ' << name_of(algorithm) << (own ? ", own memory" : ""));
        CHECK(std::accumulate(wrong.begin(), wrong.end(), std::size_t{0}) == 0);
      }
}

TEST_CASE("threads as ranks: own memory on one rank and user memory on another still agree",
          "[group]") {
  for (const std::size_t n : {10, 1000, 50'000}) {
    const auto wrong = run_threads<std::size_t>(2, [&](ProcessGroup& g) {
      Data data(g, g.rank() == 0, n);
      g.all_reduce(data.values);
      return data.wrong_sums(g.size());
    });
    CHECK(wrong[0] + wrong[1] == 0);
  }
}

TEST_CASE("threads as ranks: asynchronous operations run in the order of their calls", "[group]") {
  // Each call reads the previous one's result, so another order gives another number.
  const auto results = run_threads<float>(3, [](ProcessGroup& g) {
    std::vector<float> x(1000, 1.0F);
    std::vector<WorkPtr> works;
    for (int i = 0; i < 20; ++i) {
      works.push_back(g.all_reduce_async(std::span(x), std::span(x), ReduceOp::avg));
      works.push_back(g.all_reduce_async(std::span(x), std::span(x), ReduceOp::max));
    }
    g.all_reduce(std::span(x));  // a blocking call is queued after the asynchronous calls
    for (std::size_t i = works.size(); i-- > 0;) works[i]->wait();
    bool done = true;
    for (const auto& work : works) done = done && work->is_completed();
    return done ? x[999] : -1.0F;
  });
  float expected = 1.0F;
  const float third = 1.0F / 3.0F;
  for (int i = 0; i < 20; ++i) expected = expected * third + expected * third + expected * third;
  expected = expected + expected + expected;
  for (const float r : results) CHECK(r == expected);
}

TEST_CASE("threads as ranks: work that nobody waits for is done before the group ends", "[group]") {
  std::vector<std::vector<float>> data(2, std::vector<float>(5000, 1.0F));
  const auto works = run_threads<WorkPtr>(2, [&](ProcessGroup& g) {
    auto& mine = data[static_cast<std::size_t>(g.rank())];
    return g.all_reduce_async(std::span(mine), std::span(mine), ReduceOp::sum);
  });
  for (const WorkPtr& work : works) {  // the handle outlives its group
    CHECK(work->is_completed());
    CHECK_NOTHROW(work->wait());
  }
  CHECK(data[0][4999] == 2.0F);
  CHECK(data[1][4999] == 2.0F);
}

TEST_CASE("threads as ranks: an error in a call whose handle was dropped is said once", "[group]") {
  std::FILE* const said = std::tmpfile();
  const int before = dup(STDERR_FILENO);
  dup2(fileno(said), STDERR_FILENO);
  run_threads<int>(2, [](ProcessGroup& g) {
    std::vector<float> data(static_cast<std::size_t>(10 + g.rank())), more(10);
    (void)g.all_reduce_async(std::span(data), std::span(data), ReduceOp::sum);
    (void)g.all_reduce_async(std::span(more), std::span(more), ReduceOp::sum);
    try {
      g.barrier();  // throws the dropped operations' error
    } catch (const CommError&) {
      return 1;
    }
    return 0;
  });
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(said);
  std::string text(10'000, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), said));
  std::fclose(said);
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find("error in a call that was never waited for: rank ",
                                           at)) != std::string::npos;
       ++at)
    ++lines;
  INFO(text);
  CHECK(lines == 2);  // one per rank
}

TEST_CASE("threads as ranks: send and recv keep their order, beyond what the slots hold",
          "[group]") {
  const auto sums = run_threads<double>(2, [](ProcessGroup& g) {
    double sum = 0;
    for (int i = 0; i < 10; ++i) {
      std::vector<double> x(static_cast<std::size_t>(1 + i * 30'000), g.rank() == 0 ? i + 1 : 0);
      if (g.rank() == 0)
        g.send(std::span(x), 1);
      else
        g.recv(std::span(x), 0);
      sum += x.front() + x.back();
    }
    return sum;
  });
  CHECK(sums[1] == 110);
}

TEST_CASE("communication memory is zeroed, aligned, and used again after it was freed", "[group]") {
  const auto group = init_process_group();
  std::byte* first = nullptr;
  {
    const auto a = group->allocate(MiB(3));
    const auto b = group->allocate(Bytes(100));
    first = a->data();
    for (auto& x : a->as<std::uint64_t>()) x = ~std::uint64_t{0};
    CHECK(reinterpret_cast<std::uintptr_t>(b->data()) % 64 == 0);
    CHECK(b->size() == Bytes(100));
  }
  const auto again = group->allocate(MiB(2));
  CHECK(again->data() == first);
  const auto values = again->as<std::uint64_t>();
  CHECK(std::all_of(values.begin(), values.end(), [](std::uint64_t x) { return x == 0; }));
  CHECK_THROWS_AS(group->allocate(Bytes(std::size_t{1} << 60)), CommError);
  CHECK(group->allocate(Bytes(0))->size() == Bytes(0));
}

TEST_CASE("communication memory outlives its group", "[group]") {
  std::shared_ptr<CommMemory> memory;
  {
    const auto group = init_process_group();
    memory = group->allocate(KiB(1));
  }
  memory->as<float>()[7] = 1.5F;
  CHECK(memory->as<float>()[7] == 1.5F);
}

TEST_CASE("names of reductions and algorithms parse, and unknown ones name the choices",
          "[group]") {
  CHECK(parse_reduce_op("avg") == ReduceOp::avg);
  CHECK(parse_algorithm("gloo_ring") == Algorithm::gloo_ring);
  CHECK_THROWS_WITH(parse_reduce_op("mean"),
                    ContainsSubstring("'mean'") && ContainsSubstring("sum, avg, prod, min or max"));
  CHECK_THROWS_WITH(parse_algorithm("rign"), ContainsSubstring("'rign'"));
}

TEST_CASE("a timeout of milliseconds::max(), or of centuries, is no limit; 0 and less are refused",
          "[group]") {
  using std::chrono::milliseconds;
  for (const Transport transport : {Transport::shm, Transport::tcp})
    for (const milliseconds timeout :
         {milliseconds::max(), milliseconds(std::chrono::hours(300 * 365 * 24))}) {
      GroupOptions options;
      options.transport = transport;
      options.timeout = timeout;
      const auto sums = run_threads<float>(
          2,
          [](ProcessGroup& g) {
            // Rank 1 is so late that rank 0 checks the clock.
            if (g.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
            std::vector<float> x(1000, 1.0F);
            g.all_reduce(std::span(x));
            const auto inner = g.new_group({0, 1});
            inner->all_reduce_async(std::span<const float>(x), std::span(x), ReduceOp::sum)->wait();
            return x[999];
          },
          options);
      CHECK(sums == std::vector<float>{4, 4});
    }
  for (const milliseconds timeout : {milliseconds(0), milliseconds(-1), milliseconds::min()}) {
    GroupOptions options;
    options.timeout = timeout;
    CHECK_THROWS_AS(run_threads<int>(
                        1, [](ProcessGroup&) { return 0; }, options),
                    UsageError);
    options.bootstrap = BootstrapKind::self;
    CHECK_THROWS_WITH(init_process_group(options),
                      ContainsSubstring("GroupOptions::timeout must be above 0"));
  }
}

TEST_CASE("groups that come and go leave nothing behind", "[group]") {
  const auto grown = run_threads<std::ptrdiff_t>(2, [](ProcessGroup& g) {
    std::vector<float> x(100, 1.0F);
    const auto groups = [&](int n) {
      for (int i = 0; i < n; ++i) {
        const auto group = g.new_group({0, 1});
        if (i % 3 == 0)
          group->all_reduce_async(std::span<const float>(x), std::span(x), ReduceOp::sum)->wait();
        else
          group->all_reduce(std::span(x));
      }
      g.barrier();
      const auto used = mallinfo2();
      g.barrier();
      return static_cast<std::ptrdiff_t>(used.uordblks + used.hblkhd);
    };
    groups(50);  // allocates memory that later groups reuse
    const std::ptrdiff_t before = groups(50);
    return groups(300) - before;
  });
  CHECK(grown[0] < 16 * 1024);  // a leak of 0.2 KiB per group would add 60 KiB
}
