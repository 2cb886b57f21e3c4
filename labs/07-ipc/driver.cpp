// Runs the student's ring on emulated devices, with ranks as threads or as processes.
#include "labs/07-ipc/hostile.hpp"
// The student's file, between the definition of the macros and their removal.
#include LAB07_RING
#if !defined(atomic_ref) || !defined(cudaDeviceSynchronize) || !defined(cudaMemcpyAsync)
#error "ring.cu removes macros that the grader needs for counting"
#endif
#undef cudaIpcOpenMemHandle
#undef cudaIpcCloseMemHandle
#undef cudaDeviceSynchronize
#undef cudaFree
#undef __syncthreads
#undef cudaStreamSynchronize
#undef cudaStreamQuery
#undef cudaEventSynchronize
#undef cudaEventQuery
#undef cudaMemcpyAsync
#undef cudaMemcpy
#undef __threadfence_system
#undef atomic_thread_fence
#undef atomic_ref

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>

#include "kernels/vgpu/settings.hpp"
#include "labs/kit/counted.hpp"
#include "labs/kit/driver.hpp"
#include "labs/kit/elements.hpp"
#include "labs/kit/granted.hpp"
#include "labs/kit/processes.hpp"
#include "labs/kit/waits.hpp"

using kit::Counted;

namespace {

// Memory that all ranks (threads or processes) share, initially zero.
struct Meeting {
  std::atomic<int> arrived;
  std::atomic<int> enqueued;  // ranks that have enqueued all their calls
  lab07::Offer offers[hostile::kMostRanks];
  // Blocks until all ranks have called this `turn` times; turn counts from 1.
  void wait(int world, int turn) {
    ++arrived;
    while (arrived < world * turn) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
};

struct Plan {
  int world = 1;
  std::int64_t count = 0, calls = 1, slots = 2, slot_elements = 8;
  bool in_place = false, in_turns = false;
  std::int64_t rings = 1;            // used in turn; their slots differ in number and size
  std::int64_t type = 0;             // of the elements: labs/kit/elements.hpp
  std::uint64_t lived = 0;           // messages that each ring has passed on before
  std::vector<std::int64_t> counts;  // one per call; by default all are `count`
  explicit Plan(const kit::Request& in)
      : world(int(in.integer("world"))),
        count(in.integer("count")),
        calls(in.integer("calls", 1)),
        slots(in.integer("slots", 2)),
        slot_elements(in.integer("slot_elements", 8)),
        in_place(in.integer("in_place", 0) != 0),
        in_turns(in.integer("in_turns", 0) != 0),
        rings(in.integer("rings", 1)),
        type(in.integer("type", 0)),
        lived(std::uint64_t(in.integer("lived", 0))),
        counts(in.has("counts") ? in.integers("counts")
                                : std::vector<std::int64_t>(std::size_t(calls), count)) {
    vgpu::Settings::insist("VGPU_SEED", std::uint64_t(in.integer("seed")));
    vgpu::Settings::insist("VGPU_DEVICES", 8);
    hostile::seed = std::uint64_t(in.integer("seed"));
    hostile::slow = int(in.integer("slow", -1));
  }
};

void start_device(int rank, int world, bool one_process) {
  kit::host_tag = rank;
  kit::check(cudaSetDevice(rank), "cudaSetDevice");
  for (int r = 0; one_process && r < world; ++r)
    if (r != rank) kit::check(cudaDeviceEnablePeerAccess(r, 0), "cudaDeviceEnablePeerAccess");
}

// Number of flags that hold neither their initial value nor the last value that the neighbour
// posted. Counted only for neighbours in this process.
std::atomic<std::int64_t> unwatched = 0;
std::atomic<std::int64_t> changed = 0;  // ranks whose input changed although it is not the output

const std::byte* stations[hostile::kMostRanks];  // by rank, in this process: for the report

// One rank's part of one ring: its station, and its neighbours' stations.
struct Place {
  std::unique_ptr<kit::DeviceArray<std::byte>> station;
  lab07::Mapped previous{}, next{};
  lab07::Ring ring{};
};

// Runs one rank: meets the others, enqueues all calls in succession, and waits once, at the end.
// Elements are numbered across all calls, so that data of another call are detected.
template <class T>
std::vector<std::int64_t> be_rank_of(const Plan& plan, Meeting& meeting, int rank, bool one_process,
                                     std::int64_t& messages) {
  start_device(rank, plan.world, one_process);
  const kit::Stream stream;
  const int process = one_process ? 1 : rank + 1;
  std::vector<Place> places(std::size_t(plan.rings));
  int turn = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto slots = plan.slots + std::int64_t(i),
               elements = plan.slot_elements + 2 * std::int64_t(i);
    std::vector<std::byte> fresh(sizeof(lab07::Station) +
                                 std::size_t(slots * elements) * sizeof(T));
    const lab07::Station counters{plan.lived, plan.lived, plan.lived, plan.lived};
    std::memcpy(fresh.data(), &counters, sizeof counters);
    places[i].station = std::make_unique<kit::DeviceArray<std::byte>>(stream, fresh);
    stations[rank] = places[i].station->data();
    meeting.offers[rank] = lab07::make_offer(places[i].station->data(), process);
    meeting.wait(plan.world, ++turn);
    const auto neighbour = [&](int by) {
      return lab07::open_offer(meeting.offers[(rank + by + plan.world) % plan.world], process);
    };
    places[i].previous = neighbour(-1), places[i].next = neighbour(+1);
    const auto as_station = [](void* p) { return static_cast<lab07::Station*>(p); };
    places[i].ring = {rank,
                      plan.world,
                      as_station(places[i].station->data()),
                      as_station(places[i].previous.pointer),
                      as_station(places[i].next.pointer),
                      int(slots),
                      elements};
    meeting.wait(plan.world, ++turn);  // all have read the offers
  }
  std::int64_t all = 0;
  for (const std::int64_t count : plan.counts) all += count;
  std::vector<T> values(static_cast<std::size_t>(all));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kit::element<T>(rank, i);
  const kit::DeviceArray<T> input(stream, values), apart(stream, values.size());
  T* const output = plan.in_place ? input.data() : apart.data();
  // With in_turns, the ranks call one after the other, so an all_reduce that waits for a later rank
  // hangs.
  while (plan.in_turns && meeting.enqueued < rank)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  std::int64_t at = 0;
  for (std::size_t call = 0; call < plan.counts.size(); ++call) {
    hostile::in_call = true;
    lab07::all_reduce<T>(places[call % places.size()].ring, stream.get(), input.data() + at,
                         output + at, plan.counts[call]);
    hostile::in_call = false;
    at += plan.counts[call];
  }
  ++meeting.enqueued;
  const std::vector<T> got = plan.in_place ? input.host() : apart.host();
  if (!plan.in_place) changed += input.host() != values;
  hostile::ranks[rank].done = true;
  // Waits for the kernel: a wrong kernel must fail by its result, not because its memory was freed.
  kit::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  meeting.wait(plan.world, ++turn);
  for (Place& place : places) {
    const std::vector<std::byte> bytes = place.station->host();
    lab07::Station counters{};
    std::memcpy(&counters, bytes.data(), sizeof counters);
    messages += std::int64_t(counters.tail - plan.lived);
    const auto* const mine = reinterpret_cast<lab07::Station*>(place.station->data());
    const auto check = [&](const std::uint64_t& flag, std::uint64_t value, int by) {
      if (value != plan.lived &&
          !hostile::left((rank + by + plan.world) % plan.world, &flag, value))
        ++unwatched;
    };
    if (one_process) check(mine->tail, counters.tail, -1), check(mine->head, counters.head, +1);
    lab07::close_mapped(place.previous);
    lab07::close_mapped(place.next);
  }
  meeting.wait(plan.world, ++turn);  // the owner frees its memory after all have released it
  return kit::shown<T>(got);
}

std::vector<std::int64_t> be_rank(const Plan& plan, Meeting& meeting, int rank, bool one_process,
                                  std::int64_t& messages) {
  return kit::with_type(plan.type, [&]<class T>(T) {
    return be_rank_of<T>(plan, meeting, rank, one_process, messages);
  });
}

void put_counts(kit::Observation& out) {
  out.put("changed", changed.load());
  out.put("opened", hostile::opened.load());
  out.put("closed", hostile::closed.load());
  out.put("syncs", hostile::syncs.load());
  out.put("staged", hostile::staged.load());
  out.put("narrow", hostile::narrow.load());
  out.put("again", hostile::again.load());
  out.put("unwatched", unwatched.load());
  std::int64_t bare_posts = 0, bare_looks = 0;
  for (const hostile::Rank& rank : hostile::ranks) {
    bare_posts += rank.bare_posts;
    bare_looks += rank.bare_looks;
  }
  out.put("bare_posts", bare_posts);
  out.put("bare_looks", bare_looks);
}

int world_of_report = 0;

// Reports which flag each rank polls, and thus for which rank it waits.
std::string describe_ring() {
  std::vector<kit::Wait> waits;
  const int world = world_of_report;
  for (int r = 0; r < world; ++r) {
    hostile::Rank& rank = hostile::ranks[r];
    kit::Wait wait{r, "not waiting in a kernel", {}, rank.done};
    const auto* const flag = static_cast<const std::byte*>(rank.polls.load());
    const std::string sees = " (it is " + std::to_string(rank.sees(flag)) + ")";
    if (stations[r] != nullptr && flag == stations[r] + offsetof(lab07::Station, tail)) {
      wait.peers = {(r + world - 1) % world};
      wait.what =
          "all_reduce: waits for tail, a message of rank " + std::to_string(wait.peers[0]) + sees;
    } else if (stations[r] != nullptr && flag == stations[r] + offsetof(lab07::Station, head)) {
      wait.peers = {(r + 1) % world};
      wait.what =
          "all_reduce: waits for head, a free slot of rank " + std::to_string(wait.peers[0]) + sees;
    }
    waits.push_back(wait);
  }
  return kit::describe(waits);
}

}  // namespace

// The ranks are threads of this process, and access their neighbours' memory by pointer.
KIT_SCENARIO(threads) {
  struct Shared {
    Plan plan;
    Meeting meeting{};
    std::mutex mutex;
    std::exception_ptr failed;
    std::vector<std::int64_t> runs[hostile::kMostRanks];
    std::int64_t messages[hostile::kMostRanks] = {};
    std::atomic<int> ended = 0;
  };
  auto* const shared = new Shared{.plan = Plan(in),
                                  .mutex = {},
                                  .failed = {},
                                  .runs = {}};  // ranks that hang outlive this call
  world_of_report = shared->plan.world;
  kit::describe_hangs_with(describe_ring);
  for (int r = 0; r < shared->plan.world; ++r)
    std::thread([shared, r] {
      try {
        shared->runs[r] = be_rank(shared->plan, shared->meeting, r, true, shared->messages[r]);
      } catch (...) {
        const std::lock_guard lock(shared->mutex);
        if (!shared->failed) shared->failed = std::current_exception();
      }
      ++shared->ended;
    }).detach();
  std::int64_t seen = -1;
  kit::Granted clock;
  for (double moved = 0; shared->ended < shared->plan.world;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::lock_guard lock(shared->mutex);
    if (shared->failed) break;
    const std::int64_t now = hostile::progress + shared->ended + shared->meeting.arrived;
    const double seconds = clock.seconds();
    if (now != seen) seen = now, moved = seconds;
    if (seconds > moved + 4) throw kit::Hang{"no flag has moved for 4 s\n" + describe_ring()};
  }
  const std::lock_guard lock(shared->mutex);
  if (shared->failed) std::rethrow_exception(shared->failed);
  for (int r = 0; r < shared->plan.world; ++r) {
    out.put("out." + std::to_string(r), shared->runs[r]);
    out.put("messages." + std::to_string(r), shared->messages[r]);
  }
  put_counts(out);
}

// The ranks are processes, and access their neighbours' memory through handles.
KIT_SCENARIO(processes) {
  const Plan plan(in);
  kit::ProcessOptions options;
  options.world = plan.world;
  options.bytes = sizeof(Meeting);
  kit::Processes(options).run(
      [&](kit::Member& self, kit::Observation& seen) {
        auto& meeting = *reinterpret_cast<Meeting*>(self.memory().data());
        std::int64_t messages = 0;
        seen.put("out", be_rank(plan, meeting, self.rank(), false, messages));
        seen.put("messages", messages);
        put_counts(seen);
      },
      out);
}

namespace {
__global__ void fill(int* x, std::int64_t n, int value) {
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = value;
}
}  // namespace

// Rank 0 offers pieces of its memory; rank 1 opens them and writes 100 + i into piece i. "same":
// whether rank 0's own offer, opened by rank 0, gives the pointer that was offered.
KIT_SCENARIO(offers) {
  const Plan plan(in);
  const std::vector<std::int64_t> sizes = in.integers("sizes");
  kit::ProcessOptions options;
  options.world = 2;
  options.bytes = sizeof(Meeting);
  kit::Processes(options).run(
      [&](kit::Member& self, kit::Observation& seen) {
        auto& meeting = *reinterpret_cast<Meeting*>(self.memory().data());
        start_device(self.rank(), 2, false);
        const kit::Stream stream;
        if (self.rank() == 0) {
          std::vector<std::unique_ptr<kit::DeviceArray<int>>> pieces;
          std::vector<std::int64_t> offsets;
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            pieces.push_back(std::make_unique<kit::DeviceArray<int>>(
                stream, std::vector<int>(std::size_t(sizes[i]), -1)));
            meeting.offers[i] = lab07::make_offer(pieces[i]->data(), 1);
          }
          meeting.wait(2, 1);
          meeting.wait(2, 2);
          std::vector<std::int64_t> least, most;
          for (const auto& piece : pieces) {
            const std::vector<int> got = piece->host();
            least.push_back(*std::min_element(got.begin(), got.end()));
            most.push_back(*std::max_element(got.begin(), got.end()));
          }
          lab07::Mapped own = lab07::open_offer(meeting.offers[0], 1);
          seen.put("same", own.pointer == pieces[0]->data());
          lab07::close_mapped(own);
          seen.put("least", least);
          seen.put("most", most);
        } else {
          meeting.wait(2, 1);
          std::vector<lab07::Mapped> mapped;
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            mapped.push_back(lab07::open_offer(meeting.offers[i], 2));
            kit::launch(fill, 1, 32, 0, stream.get(), static_cast<int*>(mapped[i].pointer),
                        sizes[i], int(100 + i));
          }
          stream.synchronize();
          for (int times = 0; times < 2; ++times) lab07::close_mapped(mapped[0]);
          for (std::size_t i = 1; i < sizes.size(); ++i)  // these are still open
            kit::launch(fill, 1, 32, 0, stream.get(), static_cast<int*>(mapped[i].pointer),
                        sizes[i], int(100 + i));
          stream.synchronize();
          for (lab07::Mapped& each : mapped)
            for (int times = 0; times < 2; ++times) lab07::close_mapped(each);
          meeting.wait(2, 2);
        }
        put_counts(seen);
      },
      out);
}
