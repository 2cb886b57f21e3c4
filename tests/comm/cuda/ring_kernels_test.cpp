// Tests the ring kernels without a group. Results must have the schedules' bits for every type,
// alignment and shape. A kernel whose peer never arrives reports its position.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "tests/comm/cuda/stations.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::comm::cuda_ipc;
using namespace ringsmith::test;

namespace {

constexpr int kOddBytes = 3;
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuardByte{0xA5};

// Returns values whose sum depends on the order of its terms; arbitrary bits for integers.
std::vector<std::byte> random_values(DType dtype, std::size_t n, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(n));
  std::vector<std::byte> bytes(n * size_of(dtype));
  visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    for (std::size_t i = 0; i < n; ++i) {
      T x;
      if constexpr (std::is_integral_v<T>)
        x = static_cast<T>(random());
      else
        x = static_cast<T>(std::ldexp(static_cast<float>(random() % 2000) - 1000.0F,
                                      static_cast<int>(random() % 7) - 6));
      std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
    }
  });
  return bytes;
}

// Reduces elements [begin, begin + n) over the ranks in the given order.
void reference(DType dtype, const Arithmetic& a, const std::vector<std::vector<std::byte>>& inputs,
               const std::vector<int>& order, std::size_t begin, std::size_t n,
               std::vector<std::byte>& out) {
  // Each pair is added as in the ring: a rank's own value first, then the received one.
  const std::size_t width = size_of(dtype);
  const auto from = [&](int r) {
    return inputs[static_cast<std::size_t>(r)].data() + begin * width;
  };
  std::byte* const to = out.data() + begin * width;
  kernels::ReduceSource first{from(order[0]), a.scaled};
  kernels::cpu::reduce_oracle(dtype, a.reduction, {&first, 1}, {&to, 1}, Elements(n), a.scale);
  for (std::size_t k = 1; k < order.size(); ++k) {
    const kernels::ReduceSource both[] = {{from(order[k]), a.scaled}, {to, false}};
    kernels::cpu::reduce_oracle(dtype, a.reduction, both, {&to, 1}, Elements(n), a.scale);
  }
}

struct Case {
  int world;
  int direction = +1;
  std::size_t count = 0;
  DType dtype = DType::f32;
  Arithmetic arithmetic;
  bool packets = false, in_place = false, odd = false;
  bool shared = false;            // the kernels may store in each other's outputs
  std::size_t message_bytes = 0;  // 0: a slot's
  bool uneven = false;            // rank 1's buffers begin 4 bytes later than the other ranks'
};

// Runs one all_reduce. Returns the number of wrong bytes on all ranks, including guards.
std::size_t wrong_bytes(Stations& stations, const Case& c) {
  const std::size_t width = size_of(c.dtype), bytes = c.count * width;
  const auto begin_of = [&](int r) {
    return kGuardBytes + (c.odd ? kOddBytes : 0) + (c.uneven && r == 1 ? sizeof(float) : 0);
  };
  const auto chunks = split_evenly(c.count, c.world);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<DeviceBlock> in, out;
  const std::vector<std::byte> guards(begin_of(1) + bytes + kGuardBytes, kGuardByte);
  for (int r = 0; r < c.world; ++r) {
    inputs.push_back(random_values(c.dtype, c.count, r));
    in.emplace_back(Stations::device(r), guards.size());
    out.emplace_back(Stations::device(r), guards.size());
    for (const DeviceBlock* block : {&in.back(), &out.back()})
      copy_bytes(block->data(), guards.data(), guards.size(), Stations::device(r));
    copy_bytes(in.back().data() + begin_of(r), inputs.back().data(), bytes, Stations::device(r));
  }
  for (int r = 0; r < c.world; ++r) {
    const DeviceGuard guard(Stations::device(r));
    RingCall call = stations.ring(Collective::all_reduce, r, c.direction, chunks, c.dtype);
    call.arithmetic = c.arithmetic;
    const auto output_of = [&](int rank) {
      return (c.in_place ? in : out)[static_cast<std::size_t>(rank)].data() + begin_of(rank);
    };
    call.input = in[static_cast<std::size_t>(r)].data() + begin_of(r);
    call.output = output_of(r);
    if (c.shared) call.next_output = output_of(call.next_rank);
    if (c.message_bytes != 0) call.message_bytes = c.message_bytes;
    stations.require_all_waiting();
    (c.packets ? launch_packet_ring : launch_ring)(call, stations.stream(r).get());
  }
  stations.finish();
  if (c.packets) ++stations.packet_flag;

  std::vector<std::byte> expected(bytes);
  for (int q = 0; q < c.world; ++q) {
    std::vector<int> order;
    for (int k = 1; k <= c.world; ++k) order.push_back(wrap(q + c.direction * k, c.world));
    const Chunk& chunk = chunks[static_cast<std::size_t>(q)];
    reference(c.dtype, c.arithmetic, inputs, order, chunk.offset, chunk.count, expected);
  }
  std::size_t wrong = 0;
  for (int r = 0; r < c.world; ++r) {
    const auto i = static_cast<std::size_t>(r);
    std::vector<std::byte> got(guards.size()), want = guards;
    const auto begin = want.begin() + static_cast<std::ptrdiff_t>(begin_of(r));
    std::copy(expected.begin(), expected.end(), begin);
    copy_bytes(got.data(), (c.in_place ? in : out)[i].data(), got.size(), Stations::device(r));
    for (std::size_t b = 0; b < got.size(); ++b) wrong += got[b] != want[b] ? 1 : 0;
    if (c.in_place) continue;
    std::copy(inputs[i].begin(), inputs[i].end(), begin);
    copy_bytes(got.data(), in[i].data(), got.size(), Stations::device(r));
    for (std::size_t b = 0; b < got.size(); ++b) wrong += got[b] != want[b] ? 1 : 0;
  }
  return wrong;
}

constexpr Shape kSmall{2, 32, 1024};

}  // namespace

TEST_CASE("the ring kernel adds in the order of the ring, in slots and by packets", "[vgpu]") {
  for (const int world : {2, 3, 4}) {
    Stations stations(world, kSmall);
    const auto n = static_cast<std::size_t>(world);
    for (const int direction : {+1, -1})
      for (const bool packets : {false, true})
        for (const std::size_t count :
             {std::size_t{1}, n - 1, n, n + 1, std::size_t{1031}, std::size_t{5000}}) {
          INFO("world " << world << ", direction " << direction << ", " << count
                        << (packets ? " by packets" : " in slots"));
          CHECK(wrong_bytes(stations, {.world = world,
                                       .direction = direction,
                                       .count = count,
                                       .arithmetic = {},
                                       .packets = packets,
                                       .in_place = count % 2 == 0,
                                       .odd = count % 3 == 0}) == 0);
        }
  }
}

// With 32 threads and more, a block has a thread that only hands over. A slot of 4 KiB has two full
// turns of 32 threads, or one of 64 (flow_packs); 5000 elements and more also leave remainders.
TEST_CASE("the ring kernel stores complete elements straight in shared outputs", "[vgpu]") {
  for (const Shape& shape : {Shape{2, 32, 4096}, Shape{1, 64, 4096}, Shape{2, 4, 64}})
    for (const int world : {2, 3, 5, 8}) {
      Stations stations(world, shape);
      for (const int direction : {+1, -1})
        for (const bool shared : {false, true})
          for (const std::size_t count : {1, 1031, shape.threads < 32 ? 3001 : 40'003}) {
            INFO("world " << world << ", direction " << direction << ", " << count << ", "
                          << shape.threads << " threads" << (shared ? ", shared" : ""));
            CHECK(wrong_bytes(stations, {.world = world,
                                         .direction = direction,
                                         .count = count,
                                         .arithmetic = {},
                                         .in_place = direction > 0,
                                         .odd = count == 1031 && direction > 0,
                                         .shared = shared,
                                         .message_bytes = count == 1031 ? std::size_t{48} : 0,
                                         .uneven = count == 1031 && direction < 0}) == 0);
          }
    }
}

TEST_CASE("the ring kernel has every reduction of every type", "[vgpu]") {
  Stations stations(3, {2, 32, 2048});  // a slot has a full turn of 32 threads (flow_packs)
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8})
    for (const auto reduction : {kernels::Reduction::sum, kernels::Reduction::prod,
                                 kernels::Reduction::min, kernels::Reduction::max})
      for (const bool average : {false, true})
        for (const bool packets : {false, true}) {
          if (average && (reduction != kernels::Reduction::sum || !is_floating(dtype))) continue;
          INFO(name_of(dtype) << " reduction " << static_cast<int>(reduction)
                              << (average ? " average" : "")
                              << (packets ? " by packets" : " in slots"));
          CHECK(wrong_bytes(stations, {.world = 3,
                                       .count = std::size_t{packets ? 1031U : 12'007U},
                                       .dtype = dtype,
                                       .arithmetic = {reduction, average, average ? 1.0 / 3 : 1.0},
                                       .packets = packets,
                                       .odd = packets,
                                       .shared = average}) == 0);
        }
}

TEST_CASE("a kernel whose peer never comes ends, and says where it stood", "[vgpu]") {
  for (const auto& [packets, by_clock] :
       {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    Stations stations(2, kSmall);
    (by_clock ? stations.nanoseconds : stations.limit) = by_clock ? 30'000'000 : 5000;
    const DeviceBlock data(Stations::device(0), 4000);
    RingCall call = stations.ring(Collective::all_reduce, 0, +1, split_evenly(1000, 2), DType::f32);
    call.input = call.output = data.data();
    {
      const DeviceGuard guard(Stations::device(0));
      (packets ? launch_packet_ring : launch_ring)(call, stations.stream(0).get());
    }
    stations.synchronize();
    const KernelReport& report = stations.report(0);
    REQUIRE(report.written == 1);
    CHECK(report.stop == 1);
    CHECK(report.rank == 0);
    CHECK(report.peer == 1);
    CHECK(report.block < 2);
    CHECK(report.step == 1);
    CHECK(report.awaited == (packets ? Awaited::packet : Awaited::tail));
    CHECK(report.have == 0);
    CHECK(report.want == 1);
    CHECK(stations.report(1).written == 0);
  }
}

#ifdef RINGSMITH_VGPU
TEST_CASE("a ring whose launches wait", "[.][launch_blocking]") {
  Stations stations(2, kSmall);
  CHECK(stations.nanoseconds <= 30'000'000'000);
  stations.nanoseconds = 200'000'000;
  try {
    (void)wrong_bytes(stations, {.world = 2, .count = 1000, .arithmetic = {}});
  } catch (const Error& error) {
    std::puts(error.what());  // Catch would break the line
  }
}

TEST_CASE("a tool that makes launches wait ends these tests with a reason, not with a hang",
          "[vgpu]") {
  const testing::ProgramResult run = testing::run_program(
      {"env", "VGPU_LAUNCH_BLOCKING=1", std::filesystem::read_symlink("/proc/self/exe").string(),
       "[launch_blocking]"});
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.out,
             ContainsSubstring("rank 0's kernel waited too long for rank 1's; do launches wait"));
}
#endif

TEST_CASE("a kernel ends when its host says stop", "[vgpu]") {
  Stations stations(2, kSmall);
  const DeviceBlock data(Stations::device(0), 4000);
  RingCall call = stations.ring(Collective::broadcast, 0, +1, {{0, 0}, {0, 0}}, DType::f32);
  call.chunks[0] = {0, 1000};  // the root sends until all slots are full
  call.shape.slot_bytes = call.message_bytes = 16;
  call.input = data.data();
  const DeviceGuard guard(Stations::device(0));
  launch_ring(call, stations.stream(0).get());
  CHECK(!stations.stream(0).is_idle());
  stations.stop(0);
  stations.synchronize();
  CHECK(stations.report(0).written == 1);
  CHECK(stations.report(0).awaited == Awaited::head);
  CHECK(stations.report(0).want == 1);
}
