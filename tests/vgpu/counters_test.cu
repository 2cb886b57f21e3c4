// Tests VGPU_COUNTERS: launches by kernel with their blocks, copies and fills with their bytes.
// nvcc-check compiles all .cu files by nvcc, for which the emulator's counters are not defined.
#ifdef RINGSMITH_VGPU

#include <algorithm>
#include <filesystem>

#include "kernels/vgpu/counters.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

__global__ void counted_once(int* x) { x[threadIdx.x] = 1; }
template <int value>
__global__ void counted_by_instance(int* x) {
  x[threadIdx.x] = value;
}

// Two launches of one instance and one of the other, one copy of 16 bytes, one fill of 12.
void run_some() {
  const TestStream stream;
  const DeviceArray<int> x(4);
  const std::vector<int> host(4);
  launch(counted_once, 1, 4, 0, stream.get(), x.data());
  launch(counted_by_instance<1>, dim3(1, 2, 3), 4, 0, stream.get(), x.data());
  launch(counted_by_instance<2>, 4, 4, 0, stream.get(), x.data());
  launch(counted_by_instance<2>, 2, 2, 0, stream.get(), x.data());
  cuda_check(cudaMemcpyAsync(x.data(), host.data(), 16, cudaMemcpyHostToDevice, stream.get()));
  cuda_check(cudaMemsetAsync(x.data(), 0, 12, stream.get()));
  stream.synchronize();
}

}  // namespace

TEST_CASE("launches are counted by kernel, copies and fills with their bytes") {
  (void)vgpu::take_counts();
  run_some();
  const std::vector<vgpu::Count> counts = vgpu::take_counts();
  const auto count = [&](const std::string& part) {
    vgpu::Count sum;
    for (const vgpu::Count& c : counts)
      if (c.name.find(part) != std::string::npos) sum.runs += c.runs, sum.bytes += c.bytes;
    return sum;
  };
  CHECK(count("counted_once").runs == 1);
  CHECK(count("counted_by_instance<1>").runs == 1);
  CHECK(count("counted_by_instance<2>").runs == 2);
  const auto blocks = [&](const std::string& part) {
    return std::ranges::find_if(
               counts, [&](const vgpu::Count& c) { return c.name.find(part) != std::string::npos; })
        ->blocks;
  };
  CHECK(blocks("counted_once") == 1);
  CHECK(blocks("counted_by_instance<1>") == 6);
  CHECK(blocks("counted_by_instance<2>") == 2);  // the smaller of two grids
  CHECK(count("copy").runs == 1);
  CHECK(count("copy").bytes == 16);
  CHECK(count("fill").runs == 1);
  CHECK(count("fill").bytes == 12);
  CHECK(counts.front().runs == 2);  // the most runs first
  CHECK(vgpu::take_counts().empty());
}

TEST_CASE("launches of a captured graph are counted each time it runs") {
  const TestStream stream;
  const DeviceArray<int> x(4);
  (void)vgpu::take_counts();
  (void)vgpu::take_calls();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  launch(counted_once, 1, 4, 0, stream.get(), x.data());
  cuda_check(cudaStreamEndCapture(stream.get(), &graph));
  cuda_check(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(vgpu::take_counts().empty());
  CHECK(vgpu::take_calls().kernels == 1);  // the captured one
  for (int i = 0; i < 3; ++i) cuda_check(cudaGraphLaunch(exec, stream.get()));
  stream.synchronize();
  const vgpu::Calls calls = vgpu::take_calls();
  CHECK(calls.kernels == 0);
  CHECK(calls.graphs == 3);
  const std::vector<vgpu::Count> counts = vgpu::take_counts();
  REQUIRE(counts.size() == 1);
  CHECK(counts[0].runs == 3);
  cuda_check(cudaGraphExecDestroy(exec));
  cuda_check(cudaGraphDestroy(graph));
}

TEST_CASE("runs some kernels", "[.][counted_child]") { run_some(); }

TEST_CASE("VGPU_COUNTERS=1 prints the table when the process ends, and 0 prints nothing") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto run =
      ringsmith::testing::run_program({"env", "VGPU_COUNTERS=1", self, "[counted_child]"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.err, ContainsSubstring("vgpu: launches, copies and fills of this process\n"));
  CHECK_THAT(run.err,
             ContainsSubstring("         2              0  void counted_by_instance<2>\n"));
  CHECK_THAT(run.err, ContainsSubstring("         1             16  copy\n"));
  CHECK_THAT(run.err, ContainsSubstring("         6             28  all\n"));
  const auto quiet =
      ringsmith::testing::run_program({"env", "VGPU_COUNTERS=0", self, "[counted_child]"});
  CHECK(quiet.err.empty());
}

#endif
