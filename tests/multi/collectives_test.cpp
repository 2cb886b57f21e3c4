// Compares all collectives except all_reduce with the serial answer: every root, small and large
// counts, in communication memory and in ordinary memory, in place where supported.
#include <algorithm>

#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Returns element i of the data that `from` sends to `to`.
template <class T>
T part(int from, int to, std::size_t i) {
  return static_cast<T>(static_cast<int>(
      (i * 3 + static_cast<std::size_t>(from) * 11 + static_cast<std::size_t>(to) * 5) % 61));
}

// Runs body for each kind of memory and each count per rank.
template <class Body>
void for_each_shape(Body&& body) {
  for (const bool own : {false, true})
    for (const std::size_t n : {0, 1, 3, 1031, 20'011}) {
      INFO(n << " elements" << (own ? ", own memory" : ", user memory"));
      body(own, n);
    }
}

std::size_t world() { return static_cast<std::size_t>(group().size()); }
int rank() { return group().rank(); }

Buffer part_of(Buffer whole, std::size_t n, int index) {
  const std::size_t width = size_of(whole.dtype());
  return {whole.data() + static_cast<std::size_t>(index) * n * width, Elements(n), whole.dtype()};
}

}  // namespace

TEST_CASE("broadcast gives every rank the root's values, from every root", "[multi][comm]") {
  for_each_shape([](bool own, std::size_t n) {
    for (int root = 0; root < group().size(); ++root) {
      Guarded<double> data(group(), own, n, 4);
      data.fill([&](std::size_t i) { return part<double>(rank(), 0, i); });
      group().broadcast(data.buffer(), root);
      CHECK(data.wrong([&](std::size_t i) { return part<double>(root, 0, i); }) == 0);
    }
  });
}

TEST_CASE("all_gather puts every rank's values in rank order, in place too", "[multi][comm]") {
  for_each_shape([](bool own, std::size_t n) {
    Guarded<std::int32_t> input(group(), own, n), output(group(), own, n * world());
    const auto mine = [&](std::size_t i) { return part<std::int32_t>(rank(), 0, i); };
    const auto answer = [&](std::size_t i) {
      return part<std::int32_t>(static_cast<int>(i / n), 0, i % n);
    };
    input.fill(mine);
    group().all_gather(input.buffer(), output.buffer());
    CHECK(output.wrong(answer) == 0);
    CHECK(input.wrong(mine) == 0);
    Guarded<std::int32_t> whole(group(), own, n * world());
    whole.fill([&](std::size_t i) {
      return i / n == static_cast<std::size_t>(rank()) ? mine(i % n) : -1;
    });
    group().all_gather(part_of(whole.buffer(), n, rank()), whole.buffer());
    CHECK(whole.wrong(answer) == 0);
  });
}

TEST_CASE("bool values travel, though they cannot be reduced", "[multi][comm]") {
  Guarded<bool> flags(group(), false, 9);
  flags.fill([](std::size_t i) { return rank() == 0 && i % 2 == 0; });
  group().broadcast(flags.buffer(), 0);
  CHECK(flags.wrong([](std::size_t i) { return i % 2 == 0; }) == 0);
  CHECK_THROWS_AS(group().all_reduce(flags.buffer()), UsageError);
}

TEST_CASE("reduce_scatter gives every rank its part of the sum, in place too", "[multi][comm]") {
  for_each_shape([](bool own, std::size_t n) {
    const auto sum = [&](std::size_t i) {
      float s = 0;
      for (int r = 0; r < group().size(); ++r) s += part<float>(r, rank(), i);
      return s;
    };
    Guarded<float> input(group(), own, n * world()), output(group(), own, n);
    const auto mine = [&](std::size_t i) {
      return part<float>(rank(), static_cast<int>(i / n), i % n);
    };
    input.fill(mine);
    group().reduce_scatter(input.buffer(), output.buffer(), ReduceOp::sum);
    CHECK(output.wrong(sum) == 0);
    CHECK(input.wrong(mine) == 0);
    group().reduce_scatter(input.buffer(), part_of(input.buffer(), n, rank()), ReduceOp::sum);
    CHECK(input.wrong(static_cast<std::size_t>(rank()) * n, n, sum) == 0);
  });
}

TEST_CASE("reduce gives the root the sum and leaves the others' memory alone", "[multi][comm]") {
  for_each_shape([](bool own, std::size_t n) {
    for (const int root : {0, group().size() - 1}) {
      Guarded<std::int64_t> input(group(), own, n), output(group(), own, n);
      const auto mine = [&](std::size_t i) { return part<std::int64_t>(rank(), 0, i); };
      input.fill(mine);
      output.fill([](std::size_t) { return -7; });
      group().reduce(input.buffer(), output.buffer(), ReduceOp::sum, root);
      CHECK(input.wrong(mine) == 0);
      CHECK(output.wrong([&](std::size_t i) {
        std::int64_t s = 0;
        for (int r = 0; r < group().size(); ++r) s += part<std::int64_t>(r, 0, i);
        return rank() == root ? s : -7;
      }) == 0);
    }
  });
}

TEST_CASE("gather collects at the root, scatter hands out from it", "[multi][comm]") {
  for_each_shape([](bool own, std::size_t n) {
    for (const int root : {0, group().size() - 1}) {
      const bool is_root = rank() == root;
      Guarded<float> one(group(), own, n), all(group(), own, is_root ? n * world() : 0);
      one.fill([&](std::size_t i) { return part<float>(rank(), 0, i); });
      group().gather(one.buffer(), is_root ? all.buffer() : Buffer(), root);
      CHECK(all.wrong([&](std::size_t i) {
        return part<float>(static_cast<int>(i / n), 0, i % n);
      }) == 0);
      all.fill([&](std::size_t i) { return part<float>(root, static_cast<int>(i / n), i % n); });
      group().scatter(is_root ? ConstBuffer(all.buffer()) : ConstBuffer(), one.buffer(), root);
      CHECK(one.wrong([&](std::size_t i) { return part<float>(root, rank(), i); }) == 0);
    }
  });
}

TEST_CASE("all_to_all exchanges every pair's part, in place too", "[multi][comm]") {
  for_each_shape([](bool own, std::size_t n) {
    Guarded<std::uint8_t> input(group(), own, n * world(), 3), output(group(), own, n * world());
    const auto mine = [&](std::size_t i) {
      return part<std::uint8_t>(rank(), static_cast<int>(i / n), i % n);
    };
    const auto answer = [&](std::size_t i) {
      return part<std::uint8_t>(static_cast<int>(i / n), rank(), i % n);
    };
    input.fill(mine);
    group().all_to_all(input.buffer(), output.buffer());
    CHECK(output.wrong(answer) == 0);
    CHECK(input.wrong(mine) == 0);
    group().all_to_all(input.buffer(), input.buffer());
    CHECK(input.wrong(answer) == 0);
  });
}

TEST_CASE("send and recv pass values around the ring of ranks", "[multi][comm]") {
  if (group().size() == 1) return;
  for (const std::size_t n : {1, 1031, 100'003}) {
    Guarded<float> data(group(), false, n), from_left(group(), false, n);
    data.fill([&](std::size_t i) { return part<float>(rank(), 0, i); });
    const int right = (rank() + 1) % group().size();
    const int left = (rank() + group().size() - 1) % group().size();
    // A long message waits for its receiver, so one rank must receive first.
    if (rank() == 0) {
      group().recv(from_left.buffer(), left);
      group().send(data.buffer(), right);
    } else {
      group().send(data.buffer(), right);
      group().recv(from_left.buffer(), left);
    }
    CHECK(from_left.wrong([&](std::size_t i) { return part<float>(left, 0, i); }) == 0);
  }
}

TEST_CASE("asynchronous collectives of all kinds run in order, whoever waits for them first",
          "[multi][comm]") {
  ProcessGroup& g = group();
  std::vector<Guarded<float>> buffers;
  for (int i = 0; i < 30; ++i) {
    buffers.emplace_back(g, i % 2 == 0, 500 + static_cast<std::size_t>(i) * 400);
    buffers.back().fill([&](std::size_t k) { return part<float>(g.rank(), i, k); });
  }
  std::vector<WorkPtr> works;
  for (int i = 0; i < 30; ++i) {
    auto& b = buffers[static_cast<std::size_t>(i)];
    works.push_back(i % 3 == 0 ? g.broadcast_async(b.buffer(), i % g.size())
                               : g.all_reduce_async(b.buffer(), b.buffer(), ReduceOp::max));
  }
  g.barrier();
  for (int i = 29; i >= 0; --i) {
    works[static_cast<std::size_t>(i)]->wait();
    CHECK(buffers[static_cast<std::size_t>(i)].wrong([&](std::size_t k) {
      if (i % 3 == 0) return part<float>(i % g.size(), i, k);
      float most = 0;
      for (int r = 0; r < g.size(); ++r) most = std::max(most, part<float>(r, i, k));
      return most;
    }) == 0);
  }
}
