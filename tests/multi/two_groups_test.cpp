// Two threads use two groups of the same ranks concurrently.
#include <atomic>
#include <thread>

#include "runtime/device/memory.hpp"
#include "runtime/device/stream.hpp"
#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Returns the number of wrong elements in `calls` all_reduces of many sizes.
std::size_t keep_busy(ProcessGroup& g, unsigned calls, unsigned seed) {
  constexpr std::size_t kCounts[] = {1, 1000, 20'011, 7, 70'001};
  std::size_t wrong = 0;
  for (unsigned call = 0; call < calls; ++call) {
    Guarded<float> data(g, call % 2 == 0, kCounts[call % 5]);
    data.fill([&](std::size_t i) {
      return contribution<float>(ReduceOp::sum, g.size(), g.rank(), i, seed + call);
    });
    g.all_reduce(data.buffer());
    wrong += data.wrong(
        [&](std::size_t i) { return expected<float>(ReduceOp::sum, g.size(), i, seed + call); });
  }
  return wrong;
}

}  // namespace

TEST_CASE("two groups at once, each with a thread of its own", "[multi][two_groups]") {
  const auto other = init_process_group(group().options());
  std::size_t wrong = 0;
  std::thread beside([&] { wrong = keep_busy(*other, 25, 1000); });
  const std::size_t wrong_here = keep_busy(group(), 40, 0);
  beside.join();
  CHECK(wrong_here == 0);
  CHECK(wrong == 0);
}

TEST_CASE("two groups at once, their calls taking turns in one thread", "[multi][two_groups]") {
  const auto other = init_process_group(group().options());
  constexpr std::size_t kCount = 30'011;
  std::vector<Guarded<float>> buffers;
  std::vector<WorkPtr> works;
  for (unsigned call = 0; call < 20; ++call) {
    ProcessGroup& g = call % 2 == 0 ? group() : *other;
    buffers.emplace_back(g, false, kCount);
    buffers.back().fill([&](std::size_t i) {
      return contribution<float>(ReduceOp::sum, g.size(), g.rank(), i, call);
    });
  }
  for (unsigned call = 0; call < 20; ++call) {
    const Buffer data = buffers[call].buffer();
    works.push_back((call % 2 == 0 ? group() : *other).all_reduce_async(data, data, ReduceOp::sum));
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
  for (unsigned call = 0; call < 20; ++call)
    CHECK(buffers[call].wrong([&](std::size_t i) {
      return expected<float>(ReduceOp::sum, group().size(), i, call);
    }) == 0);
}

// With VGPU_DRIVER_WAITS=1 (entry multi_cuda_driver_waits), an allocation waits for running kernels
// and blocks launches: on rank 0, one may wait for the first group's kernel and block the second's,
// and on rank 1 the other way round.
TEST_CASE("two groups while the ranks allocate device memory", "[multi][two_groups]") {
  const auto other = init_process_group(group().options());
  const Device device = group().device();
  std::atomic<bool> stop{false};
  std::thread allocates([&] {
    while (device.is_cuda() && !stop) {
      const DeviceGuard guard(device);
      device_allocator::free(device, device_allocator::allocate(device, Bytes(100)));
      device_allocator::release_cached(device);
    }
  });
  std::size_t wrong = 0;
  const auto run = [](ProcessGroup& g, std::size_t& out) {
    Guarded<float> data(g, true, 500);
    for (unsigned call = 0; call < 400; ++call) {
      data.fill([&](std::size_t i) {
        return contribution<float>(ReduceOp::sum, g.size(), g.rank(), i, call);
      });
      g.all_reduce(data.buffer());
      out += data.wrong(
          [&](std::size_t i) { return expected<float>(ReduceOp::sum, g.size(), i, call); });
    }
  };
  std::thread beside([&] { run(*other, wrong); });
  std::size_t wrong_here = 0;
  run(group(), wrong_here);
  beside.join();
  stop = true;
  allocates.join();
  CHECK(wrong_here == 0);
  CHECK(wrong == 0);
}
