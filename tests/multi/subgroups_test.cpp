// Tests groups of some ranks: every collective, several groups concurrently, one group per node,
// and calls by ranks that are not members.
#include <algorithm>
#include <thread>

#include "runtime/base/error.hpp"
#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

using Group = std::shared_ptr<ProcessGroup>;

// Returns this rank's number of wrong values over all collectives, at counts that use the staging
// memory and the slots. `who`: the members' ranks in the whole group.
std::size_t wrong_anywhere(ProcessGroup& g, const std::vector<int>& who, unsigned seed) {
  std::size_t wrong = 0;
  const auto world = who.size();
  const auto me = static_cast<std::size_t>(g.rank());
  // Element i that the k-th member sends to the t-th.
  const auto value = [&](std::size_t k, std::size_t t, std::size_t i) {
    return static_cast<std::int32_t>(
        (static_cast<std::size_t>(who[k]) * 31 + t * 7 + i * 3 + seed) % 251);
  };
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{1031}, std::size_t{20'011}}) {
    std::vector<std::int32_t> one(n), other(n), all(n * world), all_out(n * world);
    const auto fill = [&](std::vector<std::int32_t>& data, std::size_t k) {
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = value(k, i / std::max<std::size_t>(n, 1), i % std::max<std::size_t>(n, 1));
    };
    const auto sum = [&](std::size_t t, std::size_t i) {
      std::int32_t s = 0;
      for (std::size_t k = 0; k < world; ++k) s += value(k, t, i);
      return s;
    };
    const auto compare = [&](const std::vector<std::int32_t>& got, auto expected) {
      for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != expected(i) ? 1 : 0;
    };
    const auto from_each = [&](std::size_t i) { return value(i / n, 0, i % n); };
    for (const auto algorithm :
         {Algorithm::automatic, Algorithm::ring, Algorithm::tree, Algorithm::hierarchical,
          Algorithm::halving_doubling, Algorithm::double_tree}) {
      g.set_algorithm(algorithm);
      fill(one, me);
      g.all_reduce(std::span(one));
      compare(one, [&](std::size_t i) { return sum(0, i); });
    }
    g.set_algorithm(Algorithm::automatic);
    fill(all, me);
    g.reduce_scatter(std::span<const std::int32_t>(all), std::span(one), ReduceOp::sum);
    compare(one, [&](std::size_t i) { return sum(me, i); });
    fill(one, me);
    g.all_gather(std::span<const std::int32_t>(one), std::span(all_out));
    compare(all_out, from_each);
    g.all_to_all(std::span<const std::int32_t>(all), std::span(all_out));
    compare(all_out, [&](std::size_t i) { return value(i / n, me, i % n); });
    for (const std::size_t root : {std::size_t{0}, world - 1}) {
      const int r = static_cast<int>(root);
      const bool is_root = me == root;
      fill(one, me);
      g.reduce(std::span<const std::int32_t>(one), std::span(other), ReduceOp::sum, r);
      if (is_root) compare(other, [&](std::size_t i) { return sum(0, i); });
      g.gather(std::span<const std::int32_t>(one), is_root ? Buffer(std::span(all_out)) : Buffer(),
               r);
      if (is_root) compare(all_out, from_each);
      g.scatter(is_root ? ConstBuffer(std::span<const std::int32_t>(all)) : ConstBuffer(),
                std::span(other), r);
      compare(other, [&](std::size_t i) { return value(root, me, i); });
      g.broadcast(std::span(one), r);
      compare(one, [&](std::size_t i) { return value(root, 0, i); });
    }
    if (world > 1) {  // around the ring; the first member receives last
      const int right = static_cast<int>((me + 1) % world);
      const auto left = (me + world - 1) % world;
      fill(one, me);
      const WorkPtr sent =
          me == 0 ? g.send_async(std::span<const std::int32_t>(one), right) : nullptr;
      g.recv(std::span(other), static_cast<int>(left));
      if (me != 0) g.send(std::span<const std::int32_t>(one), right);
      if (sent) sent->wait();
      compare(other, [&](std::size_t i) { return value(left, 0, i); });
    }
    g.barrier();
  }
  return wrong;
}

std::vector<int> every(int step, int first = 0) {
  std::vector<int> ranks;
  for (int r = first; r < group().size(); r += step) ranks.push_back(r);
  return ranks;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("every collective works in groups of some ranks, in the order of their list",
          "[multi][comm][groups]") {
  ProcessGroup& all = group();
  std::vector<std::vector<int>> lists{every(1), {all.size() - 1}, every(2)};
  if (all.size() > 2) {
    lists.push_back(every(1, 1));
    lists.push_back({all.size() - 1, 0});
  }
  for (const auto& list : lists) {
    const Group some = all.new_group(list);
    CHECK(some->size() == static_cast<int>(list.size()));
    if (const auto me = std::find(list.begin(), list.end(), all.rank()); me != list.end()) {
      CHECK(some->rank() == me - list.begin());
      CHECK(wrong_anywhere(*some, list, 1) == 0);
    } else {
      CHECK(some->rank() == -1);
    }
  }
}

TEST_CASE("groups side by side: halves, pairs across them and the whole, from several threads",
          "[multi][comm][groups]") {
  ProcessGroup& all = group();
  const Group parity = all.split(all.rank() % 2), whole = all.split(0);
  const Group node =
      all.split(all.node_of().empty() ? 0 : all.node_of()[static_cast<std::size_t>(all.rank())]);
  std::vector<int> neighbours;
  for (int r = 0; r < all.size(); ++r)
    if (all.node_of().empty() || all.node_of()[static_cast<std::size_t>(r)] ==
                                     all.node_of()[static_cast<std::size_t>(all.rank())])
      neighbours.push_back(r);
  std::size_t wrong[3] = {1, 1, 1};
  std::thread first([&] { wrong[0] = wrong_anywhere(*parity, every(2, all.rank() % 2), 2); });
  std::thread second([&] { wrong[1] = wrong_anywhere(*whole, every(1), 3); });
  wrong[2] = wrong_anywhere(*node, neighbours, 4);
  first.join();
  second.join();
  for (const std::size_t w : wrong) CHECK(w == 0);
  const auto nodes = node->node_of();
  for (const int number : nodes) CHECK(number == nodes[0]);
}

TEST_CASE("a group outlives the one it came from, and can be divided again",
          "[multi][comm][groups]") {
  ProcessGroup& all = group();
  Group half = all.split(all.rank() % 2);
  const Group last = half->split(half->rank() == 0 ? -1 : 0);
  const bool alone = half->rank() == 0;
  half.reset();
  if (alone) {
    CHECK_THAT(refusal([&] { last->barrier(); }),
               ContainsSubstring("barrier: rank 0 is not in the group of no ranks"));
    return;
  }
  int one = 1;
  last->all_reduce(std::span(&one, 1));
  CHECK(one == last->size());
}

TEST_CASE("a call in a group that one is not in is refused, whatever it is",
          "[multi][comm][groups]") {
  ProcessGroup& all = group();
  if (all.size() == 1) return;
  const Group some = all.new_group({0});
  if (all.rank() == 0) return;
  std::vector<float> x(4);
  const auto in = std::span<const float>(x);
  const auto out = std::span<float>(x);
  const std::string me = "rank " + std::to_string(all.rank()) + " is not in the group of ranks 0";
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"all_reduce", [&] { some->all_reduce(out); }},
      {"reduce_scatter", [&] { some->reduce_scatter(in, out, ReduceOp::sum); }},
      {"all_gather", [&] { some->all_gather(in, out); }},
      {"broadcast", [&] { some->broadcast(out, 0); }},
      {"reduce", [&] { some->reduce(in, out, ReduceOp::sum, 0); }},
      {"gather", [&] { some->gather(in, out, 0); }},
      {"scatter", [&] { some->scatter(in, out, 0); }},
      {"all_to_all", [&] { some->all_to_all(in, out); }},
      {"send", [&] { some->send(in, 0); }},
      {"recv", [&] { some->recv(out, 0); }},
      {"barrier", [&] { some->barrier(); }},
      {"all_reduce", [&] { (void)some->all_reduce_async(in, out, ReduceOp::sum); }},
      {"allocate", [&] { (void)some->allocate(Bytes(8)); }},
      {"split", [&] { (void)some->split(0); }},
      {"new_group", [&] { (void)some->new_group({0}); }}};
  for (const auto& [name, call] : calls) {
    INFO(name);
    const std::string said = refusal(call);
    CHECK_THAT(said, ContainsSubstring(me));
    CHECK(said.rfind(std::string(name) + ": ", 0) == 0);
  }
}

TEST_CASE("lists that are wrong, or not the same everywhere, are refused on every rank",
          "[multi][comm][groups]") {
  ProcessGroup& all = group();
  CHECK_THAT(refusal([&] { (void)all.new_group({}); }), ContainsSubstring("at least one member"));
  CHECK_THAT(refusal([&] { (void)all.new_group({all.size()}); }),
             ContainsSubstring("is not a rank of this group"));
  CHECK_THAT(refusal([&] { (void)all.new_group({0, 0}); }), ContainsSubstring("named twice"));
  if (all.size() > 1)
    CHECK_THAT(refusal([&] { (void)all.new_group({all.rank() == 1 ? 1 : 0}); }),
               ContainsSubstring("rank 0 called new_group({0}) but rank 1 called new_group({1})"));
  float one = 1;  // the group still works
  all.all_reduce(std::span(&one, 1));
  CHECK(one == static_cast<float>(all.size()));
}
