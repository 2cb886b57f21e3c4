// The one-shot kernel adds in rank order; the two-shot kernel starts at the chunk's owner.
#include <cmath>
#include <cstring>
#include <random>

#include "tests/comm/cuda/stations.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::comm::cuda_ipc;
using namespace ringsmith::test;

namespace {

std::vector<float> values_of(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(n));
  std::vector<float> x(n);
  for (float& v : x)
    v = std::ldexp(static_cast<float>(random() % 2000) - 1000.0F, static_cast<int>(random() % 20));
  return x;
}

struct Case {
  int world;
  std::size_t count;
  bool direct, in_place, average;
  std::size_t offset;  // bytes
};

std::size_t wrong_values(Stations& stations, const Case& c) {
  const std::size_t bytes = c.count * sizeof(float);
  const auto world = static_cast<std::size_t>(c.world);
  const auto chunks = split_evenly(c.count, c.world);
  std::vector<std::vector<float>> inputs;
  std::vector<DeviceBlock> in, out;
  for (int r = 0; r < c.world; ++r) {
    inputs.push_back(values_of(r, c.count));
    in.emplace_back(Stations::device(r), bytes + c.offset);
    out.emplace_back(Stations::device(r), bytes + c.offset);
    copy_bytes(in.back().data() + c.offset, reinterpret_cast<std::byte*>(inputs.back().data()),
               bytes, Stations::device(r));
  }
  for (int r = 0; r < c.world; ++r) {
    const DeviceGuard guard(Stations::device(r));
    const Chunk mine = chunks[static_cast<std::size_t>(r)];
    const Range range = c.direct ? Range{mine.offset, mine.count} : Range{0, c.count};
    DirectCall call = stations.direct(r, range, DType::f32);
    if (c.average) call.arithmetic = {kernels::Reduction::sum, true, 1.0 / c.world};
    for (std::size_t p = 0; p < world; ++p) {
      call.input[p] = in[p].data() + c.offset;
      call.output[p] = (c.in_place ? in : out)[p].data() + c.offset;
    }
    stations.require_all_waiting();
    (c.direct ? launch_direct : launch_one_shot)(call, stations.stream(r).get());
  }
  stations.finish();
  stations.meeting += 2;
  ++stations.packet_flag;

  std::vector<float> expected(c.count);
  const float scale = c.average ? 1.0F / static_cast<float>(c.world) : 1.0F;
  for (std::size_t owner = 0; owner < world; ++owner)
    for (std::size_t i = chunks[owner].offset; i < chunks[owner].offset + chunks[owner].count; ++i)
      for (std::size_t k = 0; k < world; ++k) {
        const float x = inputs[c.direct ? (owner + k) % world : k][i] * scale;
        expected[i] = k == 0 ? x : expected[i] + x;
      }
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < world; ++r) {
    std::vector<float> got(c.count);
    copy_bytes(reinterpret_cast<std::byte*>(got.data()),
               (c.in_place ? in : out)[r].data() + c.offset, bytes,
               Stations::device(static_cast<int>(r)));
    for (std::size_t i = 0; i < c.count; ++i) wrong += got[i] != expected[i] ? 1 : 0;
  }
  return wrong;
}

}  // namespace

TEST_CASE("one-shot adds in rank order, two-shot from the owner of the chunk on", "[vgpu]") {
  for (const int world : {2, 3, 4, 5, 8, 9}) {  // 9: loads of 8 ranks, then of one (add_up)
    Stations stations(world, {2, 32, 1024});
    const auto n = static_cast<std::size_t>(world);
    for (const bool direct : {false, true})
      for (const bool in_place : {false, true})
        for (const std::size_t count : {std::size_t{1}, n - 1, n + 1, std::size_t{4096}}) {
          INFO("world " << world << ", " << count << (direct ? ", two-shot" : ", one-shot")
                        << (in_place ? ", in place" : ""));
          CHECK(wrong_values(stations, {world, count, direct, in_place, world == 3, 0}) == 0);
          CHECK(wrong_values(stations, {world, count, direct, in_place, false, 2}) == 0);
        }
  }
}

TEST_CASE("packets go on when the number of the call passes through 2^31", "[vgpu]") {
  Stations stations(2, {1, 32, 1024});
  stations.packet_flag = 0x7ffffffeU;
  for (int call = 0; call < 4; ++call)
    CHECK(wrong_values(stations, {2, 100, false, true, false, 0}) == 0);
}
