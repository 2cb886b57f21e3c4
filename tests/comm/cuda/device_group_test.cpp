// Groups on devices, ranks as threads: both engines give the bits of the host's transport, in every
// kind of buffer, and stay apart from what else happens on the streams.
#include "tests/comm/cuda/device_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr CudaEngine kEngines[] = {CudaEngine::a, CudaEngine::b};

std::size_t sum_of(const std::vector<std::size_t>& wrong) {
  std::size_t all = 0;
  for (const std::size_t w : wrong) all += w;
  return all;
}

struct Case {
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::size_t count = 0, offset = 0;  // elements, bytes
  bool own = true, in_place = true;
};

// All_reduce on the device and on the host: how many elements differ on this rank.
template <class T>
std::size_t compare_with_host(ProcessGroup& g, const Case& c) {
  g.set_algorithm(c.algorithm);
  const std::vector<T> mine = random_values<T>(c.count, g.rank());
  std::vector<T> answer = mine;
  g.all_reduce(std::span(answer), c.op);
  const DeviceData<T> input(g, c.own, mine, c.offset);
  if (c.in_place) {
    g.all_reduce(input.buffer(), c.op);
    return input.wrong(answer);
  }
  const DeviceData<T> output(g, c.own, std::vector<T>(c.count), c.offset);
  g.all_reduce(input.buffer(), output.buffer(), c.op);
  return output.wrong(answer) + input.wrong(mine);
}

}  // namespace

TEST_CASE("threads as ranks: a device's all_reduce has the bits of the host's", "[vgpu]") {
  for (const CudaEngine engine : kEngines)
    for (const int world : {1, 2, 3}) {
      GroupOptions options;
      options.engine = engine;
      const auto wrong = run_on_devices<std::size_t>(world, options, [](ProcessGroup& g) {
        std::size_t bad = 0;
        for (const auto algorithm :
             {Algorithm::ring, Algorithm::gloo_ring, Algorithm::direct, Algorithm::tree})
          for (const std::size_t count : {1, 5, 1031, 20011})
            for (const bool own : {false, true})
              for (const bool in_place : {false, true})
                bad += compare_with_host<float>(
                    g, {ReduceOp::sum, algorithm, count, own ? 0U : 3U, own, in_place});
        return bad;
      });
      INFO("engine " << name_of(engine) << ", world " << world);
      CHECK(sum_of(wrong) == 0);
    }
}
