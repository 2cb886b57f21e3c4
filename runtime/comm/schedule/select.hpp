// The only place that chooses how a collective runs, and the list of the library's schedules.
//
//     call, world, route, sharing  --choose()-->  executor, schedule, why
//
// choose() takes the first fitting row of the table in select.cpp, which `doctor --algorithms`
// prints. All ranks make the same choice, because the agreement barrier has compared their calls
// and announced their buffers. So the order of every sum depends on neither timing nor rank. It may
// depend on the buffers: on GPUs, an all_reduce of 32 KiB to 8 MiB sums as `direct` if they are all
// in communication memory, and otherwise as `ring`, unless the call asks for one of them. barrier,
// send and recv have neither a schedule nor a row.
//
// | collective     | algorithms (schedule_player draws the first) |
// |----------------|----------------------------------------------|
// | all_reduce     | ring, gloo_ring, direct, one_shot, tree,     |
// |                | halving_doubling, double_tree, hierarchical  |
// | reduce_scatter | ring, direct                                 |
// | all_gather     | ring, direct                                 |
// | broadcast      | tree, direct                                 |
// | reduce         | tree, direct                                 |
// | gather         | direct                                       |
// | scatter        | direct                                       |
// | all_to_all     | direct                                       |
//
// all_reduce also accepts plain_ring: the schedule of ring, run by executor/plain_ring.cpp.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// How a call's data moves between ranks.
enum class Route : std::uint8_t {
  host,    // through host memory; also the memory of GPUs that do not reach each other
  nodes,   // GPUs of several nodes: between those of a node by stream or kernel, between nodes
           // through host memory
  stream,  // between GPUs, by copies and short kernels on streams (the stream engine)
  kernel   // between GPUs, by one kernel that waits for its peers' kernels (the kernel engine)
};

// Which buffers of a call other ranks can access directly, summarised over all ranks.
struct Sharing {
  bool all = true;        // every buffer
  bool none = true;       // no rank's input
  bool in_place = false;  // some rank's input and output share memory
};

enum class Executor : std::uint8_t {
  small_messages,  // executor/staging.cpp: one copy, one hand-off, sums in rank order
  mapped,          // executor/mapped.cpp: directly in all buffers; slots if that cannot work
  slots,           // executor/slots.cpp: message by message
  plain_ring,      // executor/plain_ring.cpp: the ring in its readable form
  stream,          // device/stream_engine.cpp: as mapped; device_staging if that cannot work
  device_staging,  // device/stream_engine.cpp: slice by slice through staging memory
  nodes,           // device/nodes_backend.cpp: within each node by an engine, then between nodes
  one_shot,        // device/direct.cu: every rank sends all its data to every other, in packets
  two_shot,        // device/direct.cu: directly in all buffers
  packet_ring,     // device/ring.cu: each word carries its own flag
  slot_ring        // device/ring.cu: slots and counters
};
[[nodiscard]] std::string_view name_of(Executor executor);
[[nodiscard]] constexpr bool is_kernel(Executor executor) { return executor >= Executor::one_shot; }

// Up to this Call::bytes(), one hand-off with a copy is faster than two hand-offs without. If there
// are more than two ranks, they usually outnumber the cores, so that a hand-off costs a context
// switch. The limits are the same on every transport, so that all give the same bits.
constexpr std::size_t kSmallForTwo = std::size_t{8} << 10, kSmallForMore = std::size_t{16} << 10;
// The limit for packet_ring: bytes of all parts together.
constexpr std::size_t kMostInPackets = std::size_t{32} << 10;
// Longest all_reduce that GPUs run as `direct` in shared buffers without being asked to; the
// shortest is longer than kMostInPackets. It has two hand-offs where the ring has 2 (world - 1).
// Above, the ring's hand-offs hide behind its bytes. At 8 MiB on eight H100s, they are predicted to
// take almost half of its time (tests/gpu/all_reduce_table.py).
constexpr std::size_t kMostInTwoHops = std::size_t{8} << 20;

struct Choice {
  Executor executor;
  Algorithm schedule;  // automatic: no schedule, sums in rank order
  bool settled;        // no other sharing would change this choice
  const char* why;
};

// Before the agreement barrier, pass kNothingShared; the choice is final if it is settled.
inline constexpr Sharing kNothingShared{.all = false, .none = true, .in_place = false};
[[nodiscard]] Choice choose(const Call& call, int world, Route route, const Sharing& sharing);

// Returns the option for reductions that have this algorithm, automatic for all other calls. Throws
// UsageError for a reduction if the option is only for schedules.
[[nodiscard]] Algorithm asked_of(Collective collective, Algorithm option);

// Returns the table as text. Columns: data, call, executor, schedule, why.
[[nodiscard]] std::vector<std::array<std::string, 5>> table_of_choices();

// Throws UsageError, naming the choices, if the collective does not have the algorithm, and Error
// for barrier, send and recv. element_size (bytes) matters only to gloo_ring, root only to the
// rooted collectives. node_of (schedule.hpp: [rank], or empty for all on one node) matters only to
// hierarchical and to tools that draw or price the schedule.
[[nodiscard]] Schedule make_schedule(Collective collective, Algorithm algorithm, int world,
                                     std::size_t count, std::size_t element_size = 4, int root = 0,
                                     const std::vector<int>& node_of = {});

[[nodiscard]] std::vector<Algorithm> algorithms_of(Collective collective);
// Throws UsageError, naming the choices, if the collective does not have the algorithm.
[[nodiscard]] Algorithm parse_algorithm(Collective collective, std::string_view name);
[[nodiscard]] const std::vector<Collective>& all_collectives();    // all that have schedules
[[nodiscard]] Collective parse_collective(std::string_view name);  // UsageError naming the choices

}  // namespace ringsmith::comm
