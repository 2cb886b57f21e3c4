// Compares choose() with recorded choices. A different choice may change the order of the sums, so
// update a row only if you intend that.
#include "runtime/comm/schedule/select.hpp"

#include <set>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;

namespace {

using A = Algorithm;
using C = Collective;
using X = Executor;

constexpr Sharing kAllShared{.all = true, .none = false, .in_place = false};
constexpr Sharing kSomeShared{.all = false, .none = false, .in_place = false};

Call call_of(Collective collective, Algorithm asked, std::size_t bytes) {
  Call call;
  call.collective = collective;
  call.dtype = ringsmith::DType::f32;
  call.algorithm = asked;
  call.root = contract_of(collective).rooted() ? 0 : -1;
  call.count = bytes / sizeof(float);
  return call;
}

struct Recorded {
  Collective collective;
  Algorithm asked;
  std::size_t bytes;  // of the buffer that has the same length on all ranks
  int world;
  Algorithm schedule;
  Executor none, some, all;         // if none, some or all of the buffers are shared
  Algorithm shared = A::automatic;  // the schedule if all are, where it is another one
};

void require_recorded(Route route, std::initializer_list<Recorded> list) {
  for (const Recorded& r : list) {
    const Call call = call_of(r.collective, r.asked, r.bytes);
    INFO(call.describe() << ", " << r.bytes << " bytes, world " << r.world);
    const std::pair<Sharing, Executor> by_sharing[] = {
        {kNothingShared, r.none}, {kSomeShared, r.some}, {kAllShared, r.all}};
    for (const auto& [sharing, executor] : by_sharing) {
      const Choice choice = choose(call, r.world, route, sharing);
      CHECK(name_of(choice.executor) == name_of(executor));
      if (choice.executor != X::small_messages)
        CHECK(name_of(choice.schedule) ==
              name_of(sharing.all && r.shared != A::automatic ? r.shared : r.schedule));
      CHECK(choice.settled == (r.none == r.some && r.some == r.all));
    }
  }
}

constexpr std::size_t k8 = 8192, k16 = 16384, k32 = 32768, kMiB = 1 << 20, k8MiB = 8 << 20;

}  // namespace

TEST_CASE("choices for host memory, over every transport", "[select]") {
  constexpr auto small = X::small_messages, mapped = X::mapped, slots = X::slots;
  require_recorded(
      Route::host,
      {{C::all_reduce, A::automatic, 0, 1, A::direct, small, slots, mapped},
       {C::all_reduce, A::automatic, k8, 1, A::direct, small, slots, mapped},
       {C::all_reduce, A::automatic, k8 + 4, 1, A::direct, slots, slots, mapped},
       {C::all_reduce, A::automatic, 0, 2, A::direct, small, slots, mapped},
       {C::all_reduce, A::automatic, 4, 2, A::direct, small, slots, mapped},
       {C::all_reduce, A::automatic, k8, 2, A::direct, small, slots, mapped},
       {C::all_reduce, A::automatic, k8 + 4, 2, A::direct, slots, slots, mapped},
       {C::all_reduce, A::automatic, 256 * kMiB, 2, A::direct, slots, slots, mapped},
       {C::all_reduce, A::automatic, 0, 3, A::direct, small, small, small},
       {C::all_reduce, A::automatic, k16, 3, A::direct, small, small, small},
       {C::all_reduce, A::automatic, k16 + 4, 3, A::direct, slots, slots, mapped},
       {C::all_reduce, A::automatic, k16, 64, A::direct, small, small, small},
       {C::all_reduce, A::automatic, k16 + 4, 64, A::direct, slots, slots, mapped},
       {C::all_reduce, A::ring, 4, 2, A::ring, slots, slots, mapped},
       {C::all_reduce, A::ring, 4, 3, A::ring, slots, slots, mapped},
       {C::all_reduce, A::ring, kMiB, 8, A::ring, slots, slots, mapped},
       {C::all_reduce, A::gloo_ring, 4, 4, A::gloo_ring, slots, slots, mapped},
       {C::all_reduce, A::direct, 4, 4, A::direct, slots, slots, mapped},
       {C::all_reduce, A::tree, kMiB, 2, A::tree, slots, slots, mapped},
       {C::all_reduce, A::halving_doubling, 4, 8, A::halving_doubling, slots, slots, mapped},
       {C::all_reduce, A::double_tree, 4, 8, A::double_tree, slots, slots, mapped},
       {C::all_reduce, A::hierarchical, 4, 8, A::hierarchical, slots, slots, mapped},
       {C::all_reduce, A::plain_ring, 4, 2, A::ring, X::plain_ring, X::plain_ring, X::plain_ring},
       {C::all_reduce, A::plain_ring, kMiB, 3, A::ring, X::plain_ring, X::plain_ring,
        X::plain_ring},
       // If the data has one part per rank, the small-message limit applies to a single part.
       {C::reduce_scatter, A::automatic, k8, 2, A::direct, small, slots, mapped},
       {C::reduce_scatter, A::automatic, k16, 8, A::direct, small, small, small},
       {C::reduce_scatter, A::automatic, k16 + 4, 8, A::direct, slots, slots, mapped},
       {C::reduce_scatter, A::ring, 4, 8, A::ring, slots, slots, mapped},
       {C::all_gather, A::automatic, k8, 2, A::direct, small, slots, mapped},
       {C::all_gather, A::automatic, kMiB, 3, A::direct, slots, slots, mapped},
       {C::broadcast, A::automatic, k16, 3, A::direct, small, small, small},
       {C::broadcast, A::automatic, kMiB, 3, A::direct, slots, slots, mapped},
       {C::reduce, A::automatic, kMiB, 3, A::direct, slots, slots, mapped},
       {C::reduce, A::tree, 4, 3, A::tree, slots, slots, mapped},
       {C::gather, A::automatic, kMiB, 3, A::direct, slots, slots, mapped},
       {C::scatter, A::automatic, k8, 2, A::direct, small, slots, mapped},
       {C::all_to_all, A::automatic, k16, 4, A::direct, small, small, small},
       {C::all_to_all, A::automatic, kMiB, 4, A::direct, slots, slots, mapped}});
}

TEST_CASE("choices for GPUs under the stream engine", "[select]") {
  constexpr auto far = X::device_staging, near = X::stream;
  require_recorded(
      Route::stream,
      {{C::all_reduce, A::automatic, 4, 1, A::one_shot, far, far, near},
       {C::all_reduce, A::automatic, k8, 2, A::one_shot, far, far, near},
       {C::all_reduce, A::automatic, k8 + 4, 2, A::ring, far, far, near},
       {C::all_reduce, A::automatic, k16, 3, A::one_shot, far, far, near},
       {C::all_reduce, A::automatic, k16 + 4, 8, A::ring, far, far, near},
       {C::all_reduce, A::automatic, k32, 8, A::ring, far, far, near},
       {C::all_reduce, A::automatic, k32 + 4, 8, A::ring, far, far, near, A::direct},
       {C::all_reduce, A::automatic, k8MiB, 2, A::ring, far, far, near, A::direct},
       {C::all_reduce, A::automatic, k8MiB + 4, 8, A::ring, far, far, near},
       {C::all_reduce, A::ring, 4, 2, A::ring, far, far, near},
       {C::all_reduce, A::plain_ring, 4, 2, A::ring, far, far, near},
       {C::all_reduce, A::gloo_ring, 4, 2, A::gloo_ring, far, far, near},
       {C::all_reduce, A::direct, 4, 2, A::direct, far, far, near},
       {C::all_reduce, A::tree, kMiB, 4, A::tree, far, far, near},
       {C::all_reduce, A::halving_doubling, kMiB, 4, A::halving_doubling, far, far, near},
       {C::all_reduce, A::double_tree, kMiB, 4, A::double_tree, far, far, near},
       {C::all_reduce, A::hierarchical, kMiB, 4, A::hierarchical, far, far, near},
       {C::reduce_scatter, A::automatic, 4, 2, A::ring, far, far, near},
       {C::reduce_scatter, A::ring, kMiB, 2, A::ring, far, far, near},
       {C::reduce_scatter, A::direct, 4, 2, A::direct, far, far, near},
       {C::all_gather, A::automatic, 4, 2, A::direct, far, far, near},
       {C::broadcast, A::automatic, kMiB, 2, A::direct, far, far, near},
       {C::reduce, A::automatic, 4, 2, A::direct, far, far, near},
       {C::reduce, A::tree, 4, 2, A::tree, far, far, near},
       {C::gather, A::automatic, 4, 2, A::direct, far, far, near},
       {C::scatter, A::automatic, 4, 2, A::direct, far, far, near},
       {C::all_to_all, A::automatic, k8, 2, A::direct, far, far, near}});
}

TEST_CASE("choices for GPUs of several nodes", "[select]") {
  constexpr auto small = X::small_messages, nodes = X::nodes, mapped = X::mapped, slots = X::slots;
  require_recorded(
      Route::nodes,
      {{C::all_reduce, A::automatic, k16, 4, A::direct, small, small, small},
       {C::all_reduce, A::automatic, k16 + 4, 4, A::hierarchical, nodes, nodes, nodes},
       {C::all_reduce, A::automatic, 256 * kMiB, 8, A::hierarchical, nodes, nodes, nodes},
       {C::all_reduce, A::hierarchical, 4, 4, A::hierarchical, nodes, nodes, nodes},
       {C::all_reduce, A::hierarchical, kMiB, 8, A::hierarchical, nodes, nodes, nodes},
       // The others run in host memory.
       {C::all_reduce, A::plain_ring, kMiB, 4, A::ring, X::plain_ring, X::plain_ring,
        X::plain_ring},
       {C::all_reduce, A::ring, kMiB, 4, A::ring, slots, slots, mapped},
       {C::all_reduce, A::direct, kMiB, 4, A::direct, slots, slots, mapped},
       {C::reduce_scatter, A::automatic, kMiB, 4, A::direct, slots, slots, mapped},
       {C::all_gather, A::automatic, k16, 4, A::direct, small, small, small},
       {C::broadcast, A::automatic, kMiB, 4, A::direct, slots, slots, mapped}});
}

TEST_CASE("choices for GPUs under the kernel engine", "[select]") {
  constexpr auto far = X::device_staging, near = X::stream, shot = X::one_shot;
  constexpr auto packets = X::packet_ring, slots = X::slot_ring;
  require_recorded(
      Route::kernel,
      {{C::all_reduce, A::automatic, 4, 2, A::one_shot, shot, shot, shot},
       {C::all_reduce, A::automatic, k8, 2, A::one_shot, shot, shot, shot},
       {C::all_reduce, A::automatic, k8 + 4, 2, A::ring, packets, packets, packets},
       {C::all_reduce, A::automatic, k16, 3, A::one_shot, shot, shot, shot},
       {C::all_reduce, A::automatic, k16 + 4, 3, A::ring, packets, packets, packets},
       {C::all_reduce, A::automatic, k32, 8, A::ring, packets, packets, packets},
       // The kernels sum as `direct` where they can access all buffers.
       {C::all_reduce, A::automatic, k32 + 4, 8, A::ring, slots, slots, X::two_shot, A::direct},
       {C::all_reduce, A::automatic, k8MiB, 2, A::ring, slots, slots, X::two_shot, A::direct},
       {C::all_reduce, A::automatic, k8MiB + 4, 8, A::ring, slots, slots, slots},
       {C::reduce_scatter, A::automatic, kMiB, 2, A::ring, slots, slots, slots},
       {C::all_reduce, A::ring, 4, 2, A::ring, packets, packets, packets},
       {C::all_reduce, A::ring, kMiB, 2, A::ring, slots, slots, slots},
       {C::all_reduce, A::gloo_ring, k32, 2, A::gloo_ring, packets, packets, packets},
       {C::all_reduce, A::gloo_ring, k32 + 4, 2, A::gloo_ring, slots, slots, slots},
       {C::all_reduce, A::direct, 4, 2, A::direct, far, far, X::two_shot},
       {C::all_reduce, A::direct, kMiB, 8, A::direct, far, far, X::two_shot},
       {C::all_reduce, A::plain_ring, 4, 2, A::ring, far, far, near},
       {C::all_reduce, A::tree, 4, 2, A::tree, far, far, near},
       {C::all_reduce, A::hierarchical, kMiB, 4, A::hierarchical, far, far, near},
       // Packets: all parts together are compared with the limit.
       {C::reduce_scatter, A::automatic, k16, 2, A::ring, packets, packets, packets},
       {C::reduce_scatter, A::automatic, k16 + 4, 2, A::ring, slots, slots, slots},
       {C::reduce_scatter, A::ring, k8, 4, A::ring, packets, packets, packets},
       {C::reduce_scatter, A::ring, k8, 5, A::ring, slots, slots, slots},
       {C::reduce_scatter, A::direct, 4, 2, A::direct, far, far, near},
       {C::all_gather, A::automatic, k16, 2, A::ring, packets, packets, packets},
       {C::all_gather, A::automatic, k16 + 4, 2, A::ring, slots, slots, slots},
       {C::broadcast, A::automatic, 4, 2, A::ring, slots, slots, slots},
       {C::broadcast, A::automatic, kMiB, 8, A::ring, slots, slots, slots},
       {C::reduce, A::automatic, 4, 2, A::direct, far, far, near},
       {C::reduce, A::tree, 4, 2, A::tree, far, far, near},
       {C::gather, A::automatic, 4, 2, A::direct, far, far, near},
       {C::scatter, A::automatic, 4, 2, A::direct, far, far, near},
       {C::all_to_all, A::automatic, k8, 2, A::direct, far, far, near}});
}

TEST_CASE("calls ask for the group's algorithm if they have it", "[select]") {
  for (int i = 0; i <= static_cast<int>(kLastOfGroups); ++i) {
    const auto option = static_cast<Algorithm>(i);
    CHECK(asked_of(C::all_reduce, option) == option);
    const bool scatters = option == A::ring || option == A::direct;
    CHECK(asked_of(C::reduce_scatter, option) == (scatters ? option : A::automatic));
    const bool reduces = option == A::tree || option == A::direct;
    CHECK(asked_of(C::reduce, option) == (reduces ? option : A::automatic));
    for (const Collective other : {C::barrier, C::all_gather, C::broadcast, C::gather, C::scatter,
                                   C::all_to_all, C::send, C::recv})
      CHECK(asked_of(other, option) == A::automatic);
  }
  CHECK_THROWS_AS(asked_of(C::all_reduce, A::one_shot), ringsmith::UsageError);
  CHECK_THROWS_AS(asked_of(C::all_reduce, A::own), ringsmith::UsageError);
}

TEST_CASE("every chosen schedule exists, and every row of the table serves some call", "[select]") {
  std::set<std::string> used;
  for (const Route route : {Route::host, Route::nodes, Route::stream, Route::kernel})
    for (const Collective collective : all_collectives())
      for (int option = 0; option <= static_cast<int>(kLastOfGroups); ++option)
        for (const int world : {1, 2, 3, 8})
          for (const std::size_t bytes : {std::size_t{0}, k8, k16, k32, kMiB, k8MiB + 4})
            for (const Sharing& sharing : {kNothingShared, kSomeShared, kAllShared}) {
              const Call call =
                  call_of(collective, asked_of(collective, static_cast<Algorithm>(option)), bytes);
              INFO(call.describe() << ", world " << world);
              const Choice choice = choose(call, world, route, sharing);
              used.insert(choice.why);
              if (is_kernel(choice.executor)) CHECK(route == Route::kernel);
              if (is_kernel(choice.executor) || choice.executor == X::small_messages) continue;
              CHECK_NOTHROW(make_schedule(collective, choice.schedule, world, 840));
            }
  std::set<std::string> rows;
  for (const auto& row : table_of_choices()) CHECK(rows.insert(row[4]).second);
  CHECK(used == rows);
}
