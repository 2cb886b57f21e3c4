#include "runtime/comm/schedule/select.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/comm/schedule/own.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

namespace {

// ---- how a call runs ----

enum class SizeLimit : std::uint8_t { none, small, packets, two_hops };
enum class RankLimit : std::uint8_t { none, up_to_two, more };
enum class SharedMemory : std::uint8_t { irrelevant, no_input, all };

// A set of enumerators: bit i is enumerator i.
template <class... Enum>
constexpr unsigned set_of(Enum... members) {
  return ((1U << static_cast<unsigned>(members)) | ...);
}
template <class Enum>
constexpr bool contains(unsigned set, Enum member) {
  return (set >> static_cast<unsigned>(member) & 1U) != 0;
}
constexpr unsigned kEvery = ~0U;

struct ChoiceRow {
  struct When {
    Route route = Route::host;      // rows of host also serve nodes, rows of stream kernel
    unsigned collectives = kEvery;  // set
    unsigned asked = kEvery;        // set of Call::algorithm
    SizeLimit size = SizeLimit::none;
    RankLimit ranks = RankLimit::none;
    SharedMemory memory = SharedMemory::irrelevant;
  };
  When when;
  Executor executor;
  Executor elsewhere;  // if some buffer is not shared
  Algorithm schedule;  // unless the call asks for an algorithm other than plain_ring
  const char* why;
};

// The first row that fits a call applies.
constexpr auto make_choices() {
  using A = Algorithm;
  using C = Collective;
  using E = Executor;
  using M = SharedMemory;
  using N = RankLimit;
  using R = Route;
  using S = SizeLimit;
  constexpr unsigned kAuto = set_of(A::automatic);
  constexpr unsigned kRings = set_of(A::automatic, A::ring, A::gloo_ring);
  // clang-format off
  return std::to_array<ChoiceRow>({
      {{.asked = kAuto, .size = S::small, .ranks = N::more},
       E::small_messages, E::small_messages, A::automatic,
       "one copy and one hand-off, which may cost a context switch"},
      {{.asked = kAuto, .size = S::small, .ranks = N::up_to_two, .memory = M::no_input},
       E::small_messages, E::small_messages, A::automatic,
       "a copy costs less than a second hand-off"},
      {{.route = R::nodes,
        .collectives = set_of(C::all_reduce),
        .asked = set_of(A::automatic, A::hierarchical)},
       E::nodes, E::nodes, A::hierarchical,
       "each GPU sends only its part of the sum of its node to other nodes"},
      {{.collectives = set_of(C::all_reduce), .asked = set_of(A::plain_ring)},
       E::plain_ring, E::plain_ring, A::ring,
       "the ring in its readable form was asked for"},
      {{},
       E::mapped, E::slots, A::direct,
       "two rounds at most, and the ring's bytes"},

      {{.route = R::kernel, .collectives = set_of(C::all_reduce), .asked = kAuto, .size = S::small},
       E::one_shot, E::one_shot, A::one_shot,
       "one exchange, in packets that carry their own flags"},
      {{.route = R::kernel,
        .collectives = set_of(C::all_reduce),
        .asked = set_of(A::direct),
        .memory = M::all},
       E::two_shot, E::two_shot, A::direct,
       "direct was asked for, and the kernels can access all buffers"},
      {{.route = R::kernel,
        .collectives = set_of(C::all_reduce, C::reduce_scatter, C::all_gather),
        .asked = kRings,
        .size = S::packets},
       E::packet_ring, E::packet_ring, A::ring,
       "packets need no wait for a counter"},
      {{.route = R::kernel,
        .collectives = set_of(C::all_reduce),
        .asked = kAuto,
        .size = S::two_hops,
        .memory = M::all},
       E::two_shot, E::two_shot, A::direct,
       "two hand-offs for any number of ranks, and no copy into a slot"},
      {{.route = R::kernel,
        .collectives = set_of(C::all_reduce, C::reduce_scatter, C::all_gather, C::broadcast),
        .asked = kRings},
       E::slot_ring, E::slot_ring, A::ring,
       "one kernel, and each device uses only the connection to its neighbour"},

      {{.route = R::stream, .collectives = set_of(C::all_reduce), .asked = kAuto, .size = S::small},
       E::stream, E::device_staging, A::one_shot,
       "one exchange"},
      {{.route = R::stream,
        .collectives = set_of(C::all_reduce),
        .asked = kAuto,
        .size = S::two_hops,
        .memory = M::all},
       E::stream, E::stream, A::direct,
       "two rounds, and the bits of the kernel engine"},
      {{.route = R::stream, .collectives = set_of(C::all_reduce, C::reduce_scatter)},
       E::stream, E::device_staging, A::ring,
       "each device uses only the connection to its neighbour"},
      {{.route = R::stream},
       E::stream, E::device_staging, A::direct,
       "every part moves straight from its source to its destination"},
  });
  // clang-format on
}
constexpr auto kChoices = make_choices();

constexpr std::size_t most_bytes(SizeLimit size, int world) {
  if (size == SizeLimit::packets) return kMostInPackets;
  if (size == SizeLimit::two_hops) return kMostInTwoHops;
  return world <= 2 ? kSmallForTwo : kSmallForMore;
}

// The facts about a call that the rows test, computed once per call and not once per row.
struct Facts {
  unsigned collective, asked;           // sets of one
  bool small, packets, two_hops, more;  // the limits that hold
  Route route;
};

Facts facts_of(const Call& call, int world, Route route) {
  return {set_of(call.collective),
          set_of(call.algorithm),
          call.bytes() <= most_bytes(SizeLimit::small, world),
          call.work_count(world) * size_of(call.dtype) <= most_bytes(SizeLimit::packets, world),
          call.bytes() > kMostInPackets && call.bytes() <= most_bytes(SizeLimit::two_hops, world),
          world > 2,
          route};
}

bool within(SizeLimit size, const Facts& facts) {
  switch (size) {
    case SizeLimit::small:
      return facts.small;
    case SizeLimit::packets:
      return facts.packets;
    case SizeLimit::two_hops:
      return facts.two_hops;
    default:
      return true;
  }
}

bool fits(const ChoiceRow::When& when, const Facts& facts) {
  return (when.asked & facts.asked) != 0 && (when.collectives & facts.collective) != 0 &&
         (when.route == facts.route || (when.route == Route::host && facts.route == Route::nodes) ||
          (when.route == Route::stream && facts.route == Route::kernel)) &&
         (when.ranks == RankLimit::none || (when.ranks == RankLimit::more) == facts.more) &&
         within(when.size, facts);
}

// Returns e.g. "all_reduce, reduce_scatter" or "automatic or ring".
template <class Enum>
std::string names_of(unsigned set, Enum last, const char* separator) {
  std::string text;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (contains(set, i))
      text += (text.empty() ? "" : separator) + std::string(name_of(static_cast<Enum>(i)));
  return text;
}

std::string conditions_of(const ChoiceRow::When& when) {
  std::string text;
  const auto add = [&](const std::string& condition) {
    text += (text.empty() ? "" : ", ") + condition;
  };
  const auto kib = [&](int world) { return std::to_string(most_bytes(when.size, world) >> 10); };
  if (when.collectives != kEvery) add(names_of(when.collectives, all_collectives().back(), ", "));
  if (when.asked != kEvery) add(names_of(when.asked, Algorithm::own, " or "));
  if (when.size == SizeLimit::packets)
    add("all parts up to " + kib(1) + " KiB");
  else if (when.size == SizeLimit::two_hops)
    add("above " + std::to_string(kMostInPackets >> 10) + " up to " + kib(1) + " KiB");
  else if (when.size == SizeLimit::small && when.ranks == RankLimit::none)
    add("up to " + kib(2) + " KiB (" + kib(3) + " KiB from 3 ranks on)");
  else if (when.size == SizeLimit::small)
    add("up to " + kib(when.ranks == RankLimit::more ? 3 : 2) + " KiB");
  if (when.ranks != RankLimit::none)
    add(when.ranks == RankLimit::more ? "3 ranks or more" : "1 or 2 ranks");
  if (when.memory != SharedMemory::irrelevant)
    add(when.memory == SharedMemory::all ? "all buffers in communication memory"
                                         : "no input in communication memory");
  return text.empty() ? "all other calls" : text;
}

// ---- schedules ----

struct Asked {
  Collective collective;
  int world;
  std::size_t count, element_size;
  int root;
  const std::vector<int>& node_of;
};

struct BuiltIn {
  Collective collective;  // none: serves all of them
  Algorithm algorithm;
  Schedule (*make)(const Asked&);
};

Schedule ring_or_own(const Asked& a) {
  const Schedule* own = own_ring(a.world);
  if (own == nullptr) return ring_all_reduce(a.world, a.count);
  Schedule schedule = *own;
  schedule.count = a.count;
  schedule.chunks = split_evenly(a.count, static_cast<int>(own->chunks.size()));
  return schedule;
}

// schedule_player draws the first entry of a collective by default (select.hpp).
constexpr BuiltIn kBuiltIn[] = {
    {Collective::all_reduce, Algorithm::ring, ring_or_own},
    {Collective::all_reduce, Algorithm::gloo_ring,
     [](const Asked& a) { return gloo_ring_all_reduce(a.world, a.count, a.element_size); }},
    {Collective::reduce_scatter, Algorithm::ring,
     [](const Asked& a) { return ring_reduce_scatter(a.world, a.count); }},
    {Collective::all_gather, Algorithm::ring,
     [](const Asked& a) { return ring_all_gather(a.world, a.count); }},
    {Collective::broadcast, Algorithm::tree,
     [](const Asked& a) { return tree_broadcast(a.world, a.count, a.root); }},
    {Collective::reduce, Algorithm::tree,
     [](const Asked& a) { return tree_reduce(a.world, a.count, a.root); }},
    {Collective::none, Algorithm::direct,
     [](const Asked& a) { return direct_schedule(a.collective, a.world, a.count, a.root); }},
    {Collective::all_reduce, Algorithm::one_shot,
     [](const Asked& a) { return one_shot_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, Algorithm::tree,
     [](const Asked& a) { return tree_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, Algorithm::halving_doubling,
     [](const Asked& a) { return halving_doubling_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, Algorithm::double_tree,
     [](const Asked& a) { return double_tree_all_reduce(a.world, a.count); }},
    {Collective::all_reduce, Algorithm::hierarchical,
     [](const Asked& a) { return hierarchical_all_reduce(a.world, a.count, a.node_of); }},
};

constexpr bool serves(const BuiltIn& built_in, Collective collective) {
  return built_in.collective == collective || built_in.collective == Collective::none;
}

// [collective]: the set of its algorithms.
constexpr auto kAlgorithmsOf = [] {
  std::array<unsigned, std::size(kContracts)> sets{};
  for (std::size_t c = 0; c < sets.size(); ++c)
    for (const BuiltIn& built_in : kBuiltIn)
      if (serves(built_in, static_cast<Collective>(c))) sets[c] |= set_of(built_in.algorithm);
  sets[static_cast<std::size_t>(Collective::all_reduce)] |= set_of(Algorithm::plain_ring);
  return sets;
}();

[[noreturn]] void throw_no_algorithm(Collective collective, std::string_view algorithm) {
  const unsigned known = kAlgorithmsOf[static_cast<std::size_t>(collective)];
  throw UsageError("no algorithm '" + std::string(algorithm) + "' for " + name_of(collective) +
                   ": choose one of " + names_of(known, Algorithm::own, ", "));
}

}  // namespace

std::string_view name_of(Executor executor) {
  constexpr std::string_view kNames[] = {
      "small_messages", "mapped",   "slots",    "plain_ring",  "stream",   "device_staging",
      "nodes",          "one_shot", "two_shot", "packet_ring", "slot_ring"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Executor::slot_ring) + 1);
  return kNames[static_cast<std::size_t>(executor)];
}

Choice choose(const Call& call, int world, Route route, const Sharing& sharing) {
  const Facts facts = facts_of(call, world, route);
  bool by_memory = false;  // an earlier row would fit with other sharing
  for (const ChoiceRow& row : kChoices) {
    if (!fits(row.when, facts)) continue;
    by_memory = by_memory || row.when.memory != SharedMemory::irrelevant;
    if (row.when.memory == SharedMemory::no_input && !sharing.none) continue;
    if (row.when.memory == SharedMemory::all && !sharing.all) continue;
    const bool named =
        call.algorithm != Algorithm::automatic && call.algorithm != Algorithm::plain_ring;
    return {sharing.all ? row.executor : row.elsewhere, named ? call.algorithm : row.schedule,
            !by_memory && row.executor == row.elsewhere, row.why};
  }
  throw Error(std::string("no row of the table of choices fits ") + call.name());
}

Algorithm asked_of(Collective collective, Algorithm option) {
  if (option == Algorithm::automatic || !contract_of(collective).reduces)
    return Algorithm::automatic;
  if (option > kLastOfGroups)
    throw UsageError("algorithm '" + std::string(name_of(option)) +
                     "' is only for schedules: a group cannot be asked for it");
  const unsigned known = kAlgorithmsOf[static_cast<std::size_t>(collective)];
  return contains(known, option) ? option : Algorithm::automatic;
}

std::vector<std::array<std::string, 5>> table_of_choices() {
  std::vector<std::array<std::string, 5>> rows;
  for (const auto& [when, executor, elsewhere, schedule, why] : kChoices) {
    std::string name(name_of(executor)), order = "rank order";
    if (elsewhere != executor) name += ", else " + std::string(name_of(elsewhere));
    if (executor != Executor::small_messages) order = name_of(schedule);
    const bool may_name_another = (when.asked & (when.asked - 1)) != 0;
    if (may_name_another) order += ", or as asked";
    const char* const data = when.route == Route::host     ? "host memory"
                             : when.route == Route::nodes  ? "GPUs, nodes"
                             : when.route == Route::kernel ? "GPUs, kernel"
                                                           : "GPUs";
    rows.push_back({data, conditions_of(when), name, order, why});
  }
  return rows;
}

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all = [] {
    std::vector<Collective> found;
    for (auto c = Collective::all_reduce; c != Collective::send;
         c = static_cast<Collective>(static_cast<int>(c) + 1))
      found.push_back(c);
    return found;
  }();
  return all;
}

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found;
  for (const BuiltIn& built_in : kBuiltIn)
    if (serves(built_in, collective)) found.push_back(built_in.algorithm);
  return found;
}

Algorithm parse_algorithm(Collective collective, std::string_view name) {
  const unsigned known = kAlgorithmsOf[static_cast<std::size_t>(collective)];
  for (std::size_t i = 0; i < std::size(kAlgorithmNames); ++i)
    if (name == kAlgorithmNames[i] && contains(known, i)) return static_cast<Algorithm>(i);
  throw_no_algorithm(collective, name);
}

Collective parse_collective(std::string_view name) {
  std::string choices;
  for (const Collective collective : all_collectives()) {
    if (name == name_of(collective)) return collective;
    choices += (choices.empty() ? "" : ", ") + std::string(name_of(collective));
  }
  throw UsageError("unknown collective '" + std::string(name) + "': choose one of " + choices);
}

Schedule make_schedule(Collective collective, Algorithm algorithm, int world, std::size_t count,
                       std::size_t element_size, int root, const std::vector<int>& node_of) {
  const auto& known = all_collectives();
  if (std::find(known.begin(), known.end(), collective) == known.end())
    throw Error(std::string("no schedule for ") + name_of(collective));
  const bool plain = collective == Collective::all_reduce && algorithm == Algorithm::plain_ring;
  for (const BuiltIn& built_in : kBuiltIn) {
    if (!serves(built_in, collective)) continue;
    if (built_in.algorithm != (plain ? Algorithm::ring : algorithm)) continue;
    Schedule schedule = built_in.make({collective, world, count, element_size, root, node_of});
    schedule.node_of = node_of;
    return schedule;
  }
  throw_no_algorithm(collective, name_of(algorithm));
}

}  // namespace ringsmith::comm
