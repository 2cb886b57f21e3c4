// Explores the hand-offs of the unchanged kernels (runtime/comm/device): slots.cuh, packets.cuh,
// the meetings of direct.cu, and the report to the host.
#include <cstring>
#include <new>

#include "tests/memory_order/explored/device.hpp"

using namespace explorer;
using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::comm::cuda_ipc;

namespace {

using explorer::require;  // instead of ringsmith's

constexpr int kWorld = 2;
constexpr std::size_t kSlotFloats = 4;  // 16 bytes
constexpr Shape kOneChannel{1, 1, kSlotFloats * sizeof(float)};

// The stations of two ranks. Only the counters and slots that change are reset.
struct Stations {
  std::byte* station[kWorld];
  KernelReport report[kWorld]{};
  explicit Stations(const Shape& shape = kOneChannel) {
    static std::byte* memory[kWorld] = {allocate(), allocate()};
    for (int r = 0; r < kWorld; ++r) {
      station[r] = memory[r];
      at(r).channels[0][0] = {};
      std::memset(slots(r), 0, kRingSlots * shape.slot_bytes);
      instrumented::watch(slots(r), kRingSlots * shape.slot_bytes, "slots");
      instrumented::watch(station[r] + packets_at(0, kWorld), 2 * packet_half_bytes(kWorld),
                          "packets");
      instrumented::watch(station[r], sizeof(Station), "station");
      instrumented::name(&at(r).channels[0][0].tail, "tail");
      instrumented::name(&at(r).channels[0][0].head, "head");
      for (auto& arrived : at(r).arrived) instrumented::name(&arrived[0], "arrived");
    }
  }
  static std::byte* allocate() {
    const std::size_t bytes = slots_at() + ring_slots_bytes(kOneChannel);
    auto* const memory = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{128}));
    std::memset(memory, 0, bytes);
    return memory;
  }
  [[nodiscard]] Station& at(int r) const { return *reinterpret_cast<Station*>(station[r]); }
  [[nodiscard]] float* slots(int r) const {
    return reinterpret_cast<float*>(station[r] + slots_at());
  }
  static constexpr std::size_t slots_at() { return round_up(station_bytes(kWorld), 128); }
  RingCall ring(Collective collective, int rank, int threads, const float* in, float* out) {
    RingCall call{};
    call.collective = collective;
    call.dtype = DType::f32;
    call.arithmetic = {kernels::Reduction::sum, false, 1.0};
    call.world = kWorld;
    call.position = call.rank = rank;
    call.previous_rank = call.next_rank = 1 - rank;
    call.shape = kOneChannel;
    call.shape.threads = threads;
    call.blocks = 1;
    call.input = reinterpret_cast<const std::byte*>(in);
    call.output = reinterpret_cast<std::byte*>(out);
    call.mine = station[rank];
    call.previous = call.next = station[1 - rank];
    call.slots = call.mine + slots_at();
    call.next_slots = call.next + slots_at();
    call.message_bytes = kOneChannel.slot_bytes;
    call.timeout.report = &report[rank];
    return call;
  }
};

// ---- slots.cuh: a broadcast of three messages ----
//
// All slots but two are full when the kernels start, so the third message waits for the first
// credit. The receiver takes all messages.
struct Broadcast {
  Devices devices;
  Stations stations;
  std::vector<float> in, out;
  Broadcast(int threads, std::size_t full, std::size_t sent, std::size_t taken)
      : devices(kWorld, threads), in(sent * kSlotFloats), out(taken * kSlotFloats) {
    for (std::size_t i = 0; i < full * kSlotFloats; ++i) stations.slots(1)[i] = value(i);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(full * kSlotFloats + i);
    stations.at(0).channels[0][0].sent = full;
    stations.at(1).channels[0][0].tail.value = full;
  }
  static float value(std::size_t element) { return static_cast<float>(element + 1); }
};

Program broadcast_of(int threads, std::size_t full, std::size_t sent, std::size_t taken) {
  instrumented::forget();
  const auto b = std::make_shared<Broadcast>(threads, full, sent, taken);
  return b->devices.program(
      [b = b.get(), threads](int rank, int thread) {
        RingCall call =
            b->stations.ring(Collective::broadcast, rank, threads, b->in.data(), b->out.data());
        call.chunks[0].count = rank == 0 ? b->in.size() : b->out.size();
        launch_ring(call, nullptr);
        const auto step = kSlotFloats * static_cast<std::size_t>(threads);  // a thread's own part
        for (std::size_t i = kSlotFloats * static_cast<std::size_t>(thread);
             rank == 1 && threads == 1 && i < b->out.size(); i += step)
          require(b->out[i] == Broadcast::value(i), "a wrong message");
      },
      b);
}
Program broadcast() { return broadcast_of(1, kRingSlots - 2, 3, kRingSlots + 1); }
// Two threads per rank: messages through an empty ring, and credits of a full ring.
Program messages() { return broadcast_of(1, 0, 2, 2); }
Program credits() { return broadcast_of(1, kRingSlots, 2, 2); }
Program two_messages() { return broadcast_of(2, 0, 2, 2); }
Program two_credits() { return broadcast_of(2, kRingSlots, 2, 2); }

const Row kSlots[] = {
    {{"tail", Access::load, relaxed}, "data race on slots"},
    {{"head", Access::load, relaxed}, "data race on slots"},
};
// One fence releases both counters. Of the two programs, one has only messages, one only credits.
const Row kFence = {{"fence", Access::fence, explorer::acquire}, "data race on slots"};
// Thread 0 releases thread 1's stores; thread 1 loads the values that thread 0 acquires.
const Row kBarrier = {{"barrier", Access::load, relaxed}, "data race on "};

// ---- packets.cuh: three all_reduces of one line per chunk, in alternating halves ----
struct Calls {
  static constexpr std::uint32_t kCalls = 3;
  Devices devices{kWorld, 1};
  Stations stations;
};

Program packets() {
  instrumented::forget();
  const auto c = std::make_shared<Calls>();
  return c->devices.program(
      [c = c.get()](int rank, int /*thread*/) {
        for (std::uint32_t n = 1; n <= Calls::kCalls; ++n) {
          const auto mine = static_cast<float>(n * 10 + static_cast<unsigned>(rank));
          const float in[4] = {mine, mine, mine, mine};
          float out[4] = {};
          RingCall call = c->stations.ring(Collective::all_reduce, rank, 1, in, out);
          call.chunks[0] = {0, 2};
          call.chunks[1] = {2, 2};
          call.packet_flag = n;
          call.packet_lines = 1;
          launch_packet_ring(call, nullptr);
          for (const float x : out) require(x == static_cast<float>(2 * n * 10 + 1), "a wrong sum");
        }
      },
      c);
}

// No other access orders a packet's word, so neither end may tear it.
const Row kPackets[] = {
    {{.location = "packets", .access = Access::store, .torn = true}, "a wrong sum"},
    {{.location = "packets", .access = Access::load, .torn = true}, "a wrong sum"},
};

// ---- direct.cu: each rank reads the other's input and writes the other's output ----
struct Direct {
  Devices devices{kWorld, 1};
  Stations stations;
  float data[kWorld][2]{};
  Direct() {
    for (auto& mine : data) instrumented::watch(mine, sizeof mine, "data");
  }
};

Program direct() {
  instrumented::forget();
  const auto d = std::make_shared<Direct>();
  return d->devices.program(
      [d = d.get()](int rank, int /*thread*/) {
        float* const mine = d->data[rank];
        mine[0] = mine[1] = static_cast<float>(rank + 1);
        DirectCall call{};
        call.dtype = DType::f32;
        call.arithmetic = {kernels::Reduction::sum, false, 1.0};
        call.world = kWorld;
        call.rank = rank;
        call.shape = kOneChannel;
        call.blocks = 1;
        call.meeting = 1;
        call.chunk = {static_cast<std::uint64_t>(rank), 1};
        call.timeout.report = &d->stations.report[rank];
        for (int r = 0; r < kWorld; ++r) {
          call.input[r] = reinterpret_cast<const std::byte*>(d->data[r]);
          call.output[r] = reinterpret_cast<std::byte*>(d->data[r]);
          call.station[r] = d->stations.station[r];
        }
        launch_direct(call, nullptr);
        require(mine[0] == 3.0F && mine[1] == 3.0F, "a wrong sum");
        mine[0] = mine[1] = 0;
      },
      d);
}

const Row kMeetings[] = {
    {{"arrived", Access::store, relaxed}, "data race on data"},
    {{"arrived", Access::load, relaxed}, "data race on data"},
};

// ---- the report of a kernel that has waited too long, to its host ----
Program report() {
  instrumented::forget();
  const auto c = std::make_shared<Calls>();
  KernelReport& told = c->stations.report[0];
  instrumented::watch(&told, sizeof told, "report");
  instrumented::name(&told.written, "written");
  instrumented::name(&told.stop, "stop");
  Program program = c->devices.program(
      [c = c.get(), &told](int rank, int /*thread*/) -> void {
        if (rank == 1) {  // rank 0's host
          wait_until([&] { return has_written(told); });
          return require(told.awaited == Awaited::tail && told.peer == 1 && told.want == 1,
                         "a wrong report");
        }
        const float in[kSlotFloats] = {};
        float out[kSlotFloats] = {};
        RingCall call = c->stations.ring(Collective::broadcast, rank, 1, in, out);
        call.position = 1;  // it must receive, but no rank sends
        call.chunks[0].count = kSlotFloats;
        call.timeout.limit = 1;
        launch_ring(call, nullptr);
      },
      c);
  program.threads[0].name = "kernel";
  program.threads[1].name = "host";
  return program;
}

const Row kReport[] = {
    {{"written", Access::store, relaxed}, "data race on report"},
    {{"written", Access::load, relaxed}, "data race on report"},
};

}  // namespace

TEST_CASE("slots hand over three messages through two free slots", "[handoff]") {
  expect_right("slots.cuh: a thread for each rank", broadcast);
  expect_right("slots.cuh: two threads for each rank, messages", two_messages);
  expect_right("slots.cuh: two threads for each rank, credits", two_credits);
}
TEST_CASE("each order of the slots is needed", "[handoff]") {
  for (const Row& row : kSlots) expect_wrong("slots.cuh", broadcast, row);
  expect_wrong("slots.cuh, messages", messages, kFence);
  expect_wrong("slots.cuh, credits", credits, kFence);
  expect_wrong("slots.cuh, by two threads", two_messages, kBarrier);
  expect_wrong("slots.cuh, by two threads", two_credits, kBarrier);
}
TEST_CASE("packets carry three all_reduces", "[handoff]") { expect_right("packets.cuh", packets); }
TEST_CASE("packets must not be torn", "[handoff]") {
  for (const Row& row : kPackets) expect_wrong("packets.cuh", packets, row);
}
TEST_CASE("kernels meet before and after they use each other's memory", "[handoff]") {
  expect_right("direct.cu: meetings", direct);
  for (const Row& row : kMeetings) expect_wrong("direct.cu", direct, row);
}
TEST_CASE("a host reads a kernel's report when it is whole", "[handoff]") {
  expect_right("kernel.cuh: report", report);
  for (const Row& row : kReport) expect_wrong("kernel.cuh", report, row);
}
