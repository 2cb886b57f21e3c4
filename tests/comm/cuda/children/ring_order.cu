// Runs the kernel engine under ThreadSanitizer: `ring_order KERNEL WORLD [END]`. Ranks are OS
// threads that share only the stations. END names the end of a hand-off that is weakened to
// relaxed. ordering_test.cpp lists the expected reports.
//
// `ring_order report WORLD [END]`: rank 0 runs alone, and its host reads its kernel's report.
// KERNEL_wide has blocks of a whole warp that copies and a thread that only hands over;
// ring_shared stores complete elements straight in the next rank's buffer.
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "tests/comm/cuda/stations.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::comm::cuda_ipc;
using namespace ringsmith::test;

namespace {

const std::map<std::string, End> kEnds = {
    {"none", End::none},
    {"tail_release", End::tail_release},
    {"tail_acquire", End::tail_acquire},
    {"head_release", End::head_release},
    {"head_acquire", End::head_acquire},
    {"arrival_release", End::arrival_release},
    {"arrival_acquire", End::arrival_acquire},
    {"report_release", End::report_release},
    {"report_acquire", End::report_acquire},
};

// Small slots, so that every slot is used many times.
constexpr Shape kShape{2, 4, 64}, kWide{1, 32, 256};
constexpr std::size_t kCount = 1500;

class Job {
 public:
  Job(const std::string& name, int world)
      : kernel_(name.substr(0, name.find('_', name.starts_with("one_") ? 4 : 0))),
        shared_(name.ends_with("_shared")),
        stations_(world, name.ends_with("_wide") ? kWide : kShape) {
    for (int r = 0; r < world; ++r) data_.emplace_back(Stations::device(r), kCount * sizeof(float));
  }

  // Runs one rank on its own stream. Only the kernels synchronize the ranks.
  void be_rank(int rank) {
    const Device device = Stations::device(rank);
    const DeviceGuard guard(device);
    CUstream_st* const stream = stations_.stream(rank).get();
    std::byte* const mine = data_[static_cast<std::size_t>(rank)].data();
    std::vector<float> values(kCount, static_cast<float>(rank + 1));
    cuda_check(cudaMemcpyAsync(mine, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice,
                               stream));
    for (std::uint32_t call = 0; call < 3; ++call) launch(rank, call, stream);
    cuda_check(cudaMemcpyAsync(values.data(), mine, kCount * sizeof(float), cudaMemcpyDeviceToHost,
                               stream));
    stations_.stream(rank).synchronize();
    for (const float v : values)
      if (v != expected()) throw Error("rank " + std::to_string(rank) + " has a wrong sum");
  }

  // Runs rank 0 alone. Only the report orders the host's reads after the kernel's writes.
  void be_alone() {
    const DeviceGuard guard(Stations::device(0));
    stations_.limit = 500;
    KernelReport& report = stations_.report(0);
    launch(0, 0, stations_.stream(0).get());
    while (!has_written(report)) std::this_thread::yield();
    require(report.rank == 0 && report.peer == stations_.world() - 1 && report.step == 1,
            "rank 0 gave up somewhere else");
  }

 private:
  void launch(int rank, std::uint32_t call_number, CUstream_st* stream) {
    std::byte* const mine = data_[static_cast<std::size_t>(rank)].data();
    const int world = stations_.world();
    if (kernel_ == "direct" || kernel_ == "one_shot") {
      const Chunk chunk = split_evenly(kCount, world)[static_cast<std::size_t>(rank)];
      const bool two = kernel_ == "direct";
      DirectCall call = stations_.direct(
          rank, two ? Range{chunk.offset, chunk.count} : Range{0, kCount}, DType::f32);
      for (std::size_t r = 0; r < data_.size(); ++r)
        call.input[r] = call.output[r] = data_[r].data();
      call.meeting = 2 * call_number + 1;
      call.packet_flag = call_number + 1;
      return (two ? launch_direct : launch_one_shot)(call, stream);
    }
    RingCall call =
        stations_.ring(Collective::all_reduce, rank, +1, split_evenly(kCount, world), DType::f32);
    if (kernel_ == "broadcast") {
      call.collective = Collective::broadcast;
      for (Range& chunk : call.chunks) chunk = {};
      call.chunks[0] = {0, kCount};
    }
    call.input = call.output = mine;
    if (shared_) call.next_output = data_[static_cast<std::size_t>(call.next_rank)].data();
    call.packet_flag = call_number + 1;
    (kernel_ == "packets" ? launch_packet_ring : launch_ring)(call, stream);
  }

  [[nodiscard]] float expected() const {
    if (kernel_ == "broadcast") return 1.0F;
    float sum = 0;
    for (int r = 0; r < stations_.world(); ++r) sum += static_cast<float>(r + 1);
    for (int call = 1; call < 3; ++call) sum *= static_cast<float>(stations_.world());
    return sum;
  }

  std::string kernel_;
  bool shared_;
  Stations stations_;
  std::vector<DeviceBlock> data_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_main("ring_order", [&] {
    const std::string end = argc > 3 ? argv[3] : "none";
    const std::string_view number = argc > 2 ? argv[2] : "";
    int world = 0;
    const auto [stop, error] = std::from_chars(number.begin(), number.end(), world);
    require(error == std::errc() && stop == number.end() && world >= 1 && world <= 64 &&
                kEnds.contains(end),
            "usage: ring_order ring|ring_wide|ring_shared|packets|broadcast|broadcast_wide|direct|"
            "one_shot|report WORLD [END]");
    weakened = kEnds.at(end);
    Job job(argv[1], world);
    if (argv[1] == std::string("report")) {
      job.be_alone();
      return 0;
    }
    std::vector<std::thread> ranks;
    for (int r = 0; r < world; ++r) ranks.emplace_back([&job, r] { job.be_rank(r); });
    for (std::thread& rank : ranks) rank.join();
    std::printf("right sums\n");
    return 0;
  });
}
