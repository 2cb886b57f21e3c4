#include "runtime/comm/device/whereabouts.hpp"

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::comm::cuda_ipc;

namespace {

// Rank r runs in process processes[r] on device devices[r].
std::vector<Whereabouts> ranks(const std::string& processes, const std::string& devices) {
  std::vector<Whereabouts> all;
  for (std::size_t r = 0; r < processes.size(); ++r)
    all.push_back({std::string(1, processes[r]),
                   std::string("uuid-") + devices[r],
                   Device::cuda(devices[r] - '0'),
                   "gpu",
                   {4, 128, 4096},
                   std::string(processes.size(), '1'),
                   8});
  return all;
}

std::string text(const Decision& decision) {
  std::string all;
  for (const std::string& line : decision.lines) all += line + "\n";
  return all;
}

}  // namespace

TEST_CASE("ranks with a device each use the kernel engine, unless stream is asked for", "[vgpu]") {
  const auto apart = ranks("abcd", "0123");
  CHECK(decide(apart, CudaEngine::automatic).engine == CudaEngine::kernel);
  CHECK(decide(apart, CudaEngine::kernel).engine == CudaEngine::kernel);
  CHECK(decide(apart, CudaEngine::stream).engine == CudaEngine::stream);
  CHECK_THAT(text(decide(apart, CudaEngine::automatic)),
             ContainsSubstring("6 pairs of ranks by IPC handles") &&
                 ContainsSubstring("kernel engine: every rank has its own device"));
  CHECK_THAT(text(decide(ranks("aabb", "0123"), CudaEngine::automatic)),
             ContainsSubstring("4 pairs of ranks by IPC handles, 2 pairs inside one process"));
}

TEST_CASE(
    "processes that share a device use the stream engine, and kernel is refused with the reason",
    "[vgpu]") {
  const auto shared = ranks("abc", "010");
  const Decision decision = decide(shared, CudaEngine::automatic);
  CHECK(decision.engine == CudaEngine::stream);
  CHECK_THAT(
      text(decision),
      ContainsSubstring("stream engine; the kernel engine was refused: ranks 0 and 2 share a "
                        "device (uuid-0) from different processes"));
  CHECK_THROWS_AS(decide(shared, CudaEngine::kernel), UsageError);
  CHECK_THROWS_WITH(decide(shared, CudaEngine::kernel), ContainsSubstring("ranks 0 and 2"));
}

TEST_CASE("ranks of one process that share a device use a, or b if it is asked for", "[vgpu]") {
  const auto shared = ranks("aa", "00");
  CHECK(decide(shared, CudaEngine::automatic).engine == CudaEngine::stream);
  CHECK_THAT(text(decide(shared, CudaEngine::automatic)),
             ContainsSubstring("stream engine: ranks 0 and 1 share a device"));
  CHECK(decide(shared, CudaEngine::kernel).engine == CudaEngine::kernel);
  CHECK_THAT(text(decide(shared, CudaEngine::kernel)),
             ContainsSubstring("kernel engine, as requested: ranks 0 and 1 share a device"));
}

TEST_CASE("the kernel engine is refused if a device does not hold all blocks of its ranks",
          "[vgpu]") {
  // Every rank has 4 blocks, and a device holds 8.
  CHECK(decide(ranks("aa", "00"), CudaEngine::kernel).engine == CudaEngine::kernel);
  CHECK_THROWS_WITH(decide(ranks("aaaa", "0100"), CudaEngine::kernel),
                    ContainsSubstring("the 3 ranks on device uuid-0 (gpu) would run 12 blocks that "
                                      "wait for each other, and the device holds 8"));
  CHECK_THROWS_AS(decide(ranks("aaa", "000"), CudaEngine::kernel), UsageError);
  CHECK(decide(ranks("aaa", "000"), CudaEngine::stream).engine == CudaEngine::stream);
  CHECK(decide(ranks("aaa", "000"), CudaEngine::automatic).engine == CudaEngine::stream);
  // A kernel with too many registers for a block of this size.
  auto apart = ranks("ab", "01");
  apart[1].resident = 0;
  CHECK_THAT(text(decide(apart, CudaEngine::automatic)),
             ContainsSubstring("stream engine; the kernel engine was refused: the 1 rank on device "
                               "uuid-1"));
  CHECK_THROWS_AS(decide(apart, CudaEngine::kernel), UsageError);
  // The smallest shape of all ranks counts.
  auto small = ranks("aaa", "000");
  small[2].shape.channels = 2;
  CHECK(decide(small, CudaEngine::kernel).engine == CudaEngine::kernel);
}

TEST_CASE(
    "a device out of reach is a reason for host memory, and an error if an engine is asked for",
    "[vgpu]") {
  auto apart = ranks("abc", "012");
  CHECK(decide(apart, CudaEngine::automatic).refused.empty());
  apart[1].reaches = "110";
  for (const char* who : {"rank 1 on cuda:1", "rank 2 on cuda:2"}) {
    CHECK_THAT(decide(apart, CudaEngine::automatic).refused, ContainsSubstring(who));
    CHECK_THROWS_WITH(decide(apart, CudaEngine::stream), ContainsSubstring(who));
  }
  CHECK_THROWS_AS(decide(apart, CudaEngine::stream), UsageError);
  CHECK_THROWS_WITH(decide(apart, CudaEngine::kernel), ContainsSubstring("leave --engine out"));
}

TEST_CASE("engines have the names a and b of earlier versions, too", "[vgpu]") {
  for (const CudaEngine engine : {CudaEngine::automatic, CudaEngine::stream, CudaEngine::kernel})
    CHECK(parse_cuda_engine(name_of(engine)) == engine);
  CHECK(parse_cuda_engine("a") == CudaEngine::stream);
  CHECK(parse_cuda_engine("b") == CudaEngine::kernel);
  CHECK_THROWS_WITH(parse_cuda_engine("c"),
                    ContainsSubstring("unknown engine 'c': use auto, stream or kernel"));
}

TEST_CASE("the kernel engine takes the smallest shape of all ranks", "[vgpu]") {
  auto apart = ranks("ab", "01");
  apart[1].shape = {2, 512, 1024};
  CHECK(decide(apart, CudaEngine::kernel).shape == Shape{2, 128, 1024});
  CHECK(decide(ranks("a", "0"), CudaEngine::automatic).engine == CudaEngine::stream);
}
