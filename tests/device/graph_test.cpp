// Captured graphs: they keep their memory, refuse work that cannot be repeated, and leave the
// stream usable.
#include "runtime/device/graph.hpp"

#include <algorithm>
#include <cuda_runtime.h>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/transfer.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using Catch::Matchers::ContainsSubstring;

namespace {

const Device kDevice = Device::cuda(0);
constexpr std::size_t kBytes = 5000;

std::byte* take(std::size_t size = kBytes) {
  return device_allocator::allocate(kDevice, Bytes(size));
}
void give(std::byte* block) { device_allocator::free(kDevice, block); }
void fill(std::byte* block, int value) {
  cuda_check(cudaMemsetAsync(block, value, kBytes, Stream::current(kDevice).get()));
}
int first_of(const std::byte* block) {
  std::byte value{};
  transfer(&value, Device::cpu(), block, kDevice, Bytes(1));
  return std::to_integer<int>(value);
}

// Takes every free block of the class that the stream has, and n new ones.
std::vector<std::byte*> take_all(std::size_t n) {
  std::vector<std::byte*> all;
  const std::uint64_t before = device_allocator::stats(kDevice).system_allocations;
  while (device_allocator::stats(kDevice).system_allocations < before + n) all.push_back(take());
  return all;
}
bool contains(const std::vector<std::byte*>& all, const std::byte* block) {
  return std::ranges::find(all, block) != all.end();
}

}  // namespace

TEST_CASE("a graph keeps the blocks that its capture allocates or frees", "[graph]") {
  const StreamGuard own(Stream::create(kDevice));
  std::byte* const earlier = take();  // freed in the capture
  std::byte *inside = nullptr, *later = nullptr, *same = nullptr, *lasting = nullptr;
  auto graph = std::make_unique<DeviceGraph>(kDevice, [&] {
    fill(earlier, 1);
    give(earlier);
    inside = take();
    fill(inside, 2);
    give(inside);
    same = take();  // work of a graph has an order, so the block is reused
    give(same);
    later = take();
    fill(later, 3);
    give(later);
    lasting = take();
    fill(lasting, 4);
  });
  CHECK(graph->nodes() == 4);
  CHECK(inside != earlier);  // a launch may have to find its contents
  CHECK(same == inside);
  CHECK(lasting == inside);
  CHECK(graph->memory().reserved().value >= 2 * kBytes);
  give(lasting);  // after the capture
  std::vector<std::byte*> others = take_all(2);
  for (const std::byte* block : {earlier, inside, lasting}) CHECK_FALSE(contains(others, block));
  for (std::byte* block : others) fill(block, 9);
  for (int i = 0; i < 3; ++i) graph->launch();
  for (std::byte* block : others) CHECK(first_of(block) == 9);
  CHECK(first_of(earlier) == 1);
  CHECK(first_of(lasting) == 4);
  graph.reset();
  const std::vector<std::byte*> freed = take_all(1);  // the graph's blocks are free now
  for (const std::byte* block : {earlier, inside}) CHECK(contains(freed, block));
  for (std::byte* block : others) give(block);
  for (std::byte* block : freed) give(block);
}

TEST_CASE("a block outlives its graph, and a graph the handle of its stream", "[graph]") {
  std::byte* lasting = nullptr;
  Event done;
  {
    const StreamGuard own(Stream::create(kDevice));
    DeviceGraph graph(kDevice, [&] {
      lasting = take();
      fill(lasting, 5);
    });
    graph.launch();
    done = Event::record(Stream::current(kDevice));
  }
  done.synchronize();  // first_of() copies on another stream
  CHECK(first_of(lasting) == 5);
  give(lasting);
}

TEST_CASE("two graphs of a stream have different memory", "[graph]") {
  const StreamGuard own(Stream::create(kDevice));
  std::byte *a = nullptr, *b = nullptr;
  const auto of = [](std::byte*& block, int value) {
    return std::make_unique<DeviceGraph>(kDevice, [&block, value] {
      block = take();
      fill(block, value);
      give(block);
    });
  };
  const auto first = of(a, 1);
  auto second = of(b, 2);
  CHECK(a != b);
  first->launch();
  second->launch();
  CHECK(first_of(a) == 1);
  // A block that one graph allocates and the other frees belongs to both until both have ended.
  std::byte* shared = nullptr;
  auto maker = std::make_unique<DeviceGraph>(kDevice, [&] { shared = take(); });
  auto user = std::make_unique<DeviceGraph>(kDevice, [&] {
    fill(shared, 3);
    give(shared);
  });
  user.reset();
  std::vector<std::byte*> others = take_all(1);
  CHECK_FALSE(contains(others, shared));
  maker.reset();
  std::vector<std::byte*> more = take_all(1);
  CHECK(contains(more, shared));
  for (std::byte* block : others) give(block);
  for (std::byte* block : more) give(block);
}

TEST_CASE("a capture allocates new memory, without the cache, too", "[graph]") {
  for (const bool cached : {true, false}) {
    device_allocator::set_caching(cached);
    {
      const StreamGuard own(Stream::create(kDevice));
      const std::uint64_t before = device_allocator::stats(kDevice).system_allocations;
      std::byte* block = nullptr;
      DeviceGraph graph(kDevice, [&] {
        block = take(3 << 20);
        fill(block, 7);
        give(block);
        if (!cached) CHECK(take(3 << 20) != block);
      });
      CHECK(device_allocator::stats(kDevice).system_allocations > before);
      graph.launch();
      CHECK(first_of(block) == 7);
    }
    device_allocator::set_caching(true);
  }
}

TEST_CASE("work that throws, or cannot be captured, leaves the stream and its memory usable",
          "[graph]") {
  const StreamGuard own(Stream::create(kDevice));
  const Stream stream = Stream::current(kDevice);
  std::byte* const block = take();
  std::byte on_host[8] = {};
  struct Case {
    const char* reason;
    std::function<void()> work;
  };
  const std::vector<Case> cases{
      {"read a GPU's memory on the host",
       [&] { transfer(on_host, Device::cpu(), block, kDevice, Bytes(8)); }},
      {"read a GPU's memory on the host", [&] { const Fetch fetch(block, kDevice, Bytes(8)); }},
      {"copy from the host to a GPU",
       [&] { transfer(block, kDevice, on_host, Device::cpu(), Bytes(8)); }},
      {"wait for the GPU", [&] { stream.synchronize(); }},
      {"a mistake of the caller", [] { throw UsageError("a mistake of the caller"); }},
      {"while the thread captures another one", [] { const DeviceGraph inner(kDevice, [] {}); }},
      // The work hides an error that has invalidated the capture.
      {"cudaStreamEndCapture", [&] { (void)cudaStreamQuery(stream.get()); }},
  };
  for (const Case& c : cases) {
    INFO(c.reason);
    std::byte* inside = nullptr;
    CHECK_THROWS_WITH(
        DeviceGraph(kDevice,
                    [&] {
                      inside = take();
                      fill(inside, 1);
                      c.work();
                    }),
        ContainsSubstring("the step cannot be captured") && ContainsSubstring(c.reason));
    fill(block, 6);
    CHECK(first_of(block) == 6);  // the stream works, and nothing that was captured has run
    fill(inside, 8);
    CHECK(first_of(inside) == 8);
    give(inside);
    DeviceGraph good(kDevice, [&] { fill(block, 2); });
    good.launch();
    CHECK(first_of(block) == 2);
  }
  CHECK_THROWS_AS(DeviceGraph(kDevice, [] { throw std::runtime_error("other"); }),
                  std::runtime_error);
  CHECK_THROWS_WITH(DeviceGraph(Device::cpu(), [] {}), ContainsSubstring("CPU"));
  stream.synchronize();
  give(block);
}

TEST_CASE("a graph is launched on its stream only", "[graph]") {
  std::optional<DeviceGraph> graph;
  {
    const StreamGuard own(Stream::create(kDevice));
    graph.emplace(kDevice, [] {});
    graph->launch();  // an empty graph does nothing
  }
  CHECK_THROWS_WITH(graph->launch(), ContainsSubstring("stream of its capture"));
}

TEST_CASE("another thread allocates and waits during a capture", "[graph]") {
  const StreamGuard own(Stream::create(kDevice));
  std::byte* block = take();
  DeviceGraph graph(kDevice, [&] {
    fill(block, 1);
    std::thread([] {
      const StreamGuard other(Stream::create(kDevice));
      std::byte* const mine = take(7 << 20);
      fill(mine, 3);
      CHECK(first_of(mine) == 3);
      give(mine);  // not into the graph
      std::byte* const again = take(7 << 20);
      CHECK(again == mine);
      give(again);
    }).join();
  });
  CHECK(graph.nodes() == 1);
  graph.launch();
  CHECK(first_of(block) == 1);
  give(block);
}
