// Tests the guarantees of groups on devices about streams, memory and errors (process_group.hpp).
#include <atomic>

#include "runtime/base/error.hpp"
#include "runtime/comm/device_process_group.hpp"
#include "tests/comm/cuda/device_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr CudaEngine kEngines[] = {CudaEngine::stream, CudaEngine::kernel};

void doze(void* milliseconds) {
  std::this_thread::sleep_for(*static_cast<std::chrono::milliseconds*>(milliseconds));
}

void delay(const Stream& stream, std::chrono::milliseconds& time) {
  cuda_check(cudaLaunchHostFunc(stream.get(), doze, &time));
}

float first_value(const DeviceData<float>& data, Device device) {
  float x = 0;
  copy_on_device(&x, data.buffer().data(), sizeof x, device);
  return x;
}

}  // namespace

TEST_CASE("threads as ranks: a collective waits for the caller's stream, and that one for it",
          "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto sums = run_on_devices<float>(2, options, [](ProcessGroup& g) {
      const Stream stream = Stream::current(g.device());
      const std::size_t n = 5000;
      const DeviceData<float> data(g, true, std::vector<float>(n, -100.0F)),
          after(g, true, std::vector<float>(n));
      const std::vector<float> late(n, static_cast<float>(g.rank() + 1));
      std::chrono::milliseconds time(g.rank() == 0 ? 30 : 0);
      delay(stream, time);
      cuda_check(cudaMemcpyAsync(data.buffer().data(), late.data(), n * sizeof(float),
                                 cudaMemcpyHostToDevice, stream.get()));
      const WorkPtr work = g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum);
      work->wait();
      // The host gets here before the data is written, but the stream orders the copy after the
      // write.
      cuda_check(cudaMemcpyAsync(after.buffer().data(), data.buffer().data(), n * sizeof(float),
                                 cudaMemcpyDeviceToDevice, stream.get()));
      const float sum = first_value(after, g.device());
      return work->is_completed() ? sum : -1.0F;
    });
    INFO("engine " << name_of(engine));
    CHECK(sums[0] == 3.0F);
    CHECK(sums[1] == 3.0F);
  }
}

TEST_CASE("threads as ranks: collectives are more urgent than what runs beside them", "[vgpu]") {
  int least = 0, greatest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    for (const int priority : run_on_devices<int>(2, options, [](ProcessGroup& g) {
           int mine = 0;
           cuda_check(
               cudaStreamGetPriority(dynamic_cast<DeviceProcessGroup&>(g).stream().get(), &mine));
           return mine;
         }))
      CHECK(priority == greatest);
  }
  CHECK(greatest < least);
}

TEST_CASE("threads as ranks: host_wait returns when the host itself may look", "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto done = run_on_devices<int>(2, options, [](ProcessGroup& g) {
      const DeviceData<float> data(g, false, std::vector<float>(100'000, 1.0F));
      bool all = true;
      for (int call = 0; call < 5; ++call) {
        const WorkPtr work = g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::max);
        work->host_wait();
        all = all && work->is_completed();
      }
      return all ? 1 : 0;
    });
    CHECK(done[0] == 1);
    CHECK(done[1] == 1);
  }
}

TEST_CASE("threads as ranks: two groups work at once, each on a stream of its own", "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto second = std::make_shared<ThreadRendezvous>(3);
    const auto wrong = run_on_devices<std::size_t>(3, options, [&](ProcessGroup& g) {
      GroupOptions mine = g.options();
      const auto other =
          init_process_group(std::make_shared<ThreadBootstrap>(second, g.rank()), mine);
      const Stream side = Stream::create(g.device());
      std::vector<DeviceData<float>> ours, theirs;
      for (std::size_t i = 0; i < 12; ++i) {
        const std::vector<float> ones(100 + 3000 * i, 1.0F);
        ours.emplace_back(g, true, ones);
        theirs.emplace_back(*other, i % 2 == 0, ones);
      }
      std::vector<WorkPtr> works;
      for (std::size_t i = 0; i < 12; ++i) {
        // Rank 1 calls the groups in the opposite order.
        const auto call = [&](bool first) {
          const StreamGuard guard(first ? Stream() : side);
          const Buffer data = (first ? ours : theirs)[i].buffer();
          works.push_back((first ? g : *other).all_reduce_async(data, data, ReduceOp::sum));
        };
        call(g.rank() != 1);
        call(g.rank() == 1);
      }
      for (const WorkPtr& work : works) work->wait();
      std::size_t bad = 0;
      for (std::size_t i = 0; i < 12; ++i) {
        const std::vector<float> threes(100 + 3000 * i, 3.0F);
        bad += ours[i].wrong(threes) + theirs[i].wrong(threes);
      }
      return bad;
    });
    INFO("engine " << name_of(engine));
    CHECK(wrong[0] + wrong[1] + wrong[2] == 0);
  }
}

TEST_CASE("threads as ranks: 200 device calls without a barrier, and without looking", "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto wrong = run_on_devices<std::size_t>(4, options, [](ProcessGroup& g) {
      constexpr std::size_t kCounts[] = {3, 1000, 3000, 20011, 5, 9009};
      std::vector<DeviceData<float>> data;
      for (std::size_t call = 0; call < 200; ++call)
        data.emplace_back(g, call % 3 != 0, std::vector<float>(kCounts[call % 6], 1.0F));
      for (const auto& d : data) g.all_reduce(d.buffer());
      std::size_t bad = 0;
      for (std::size_t call = 0; call < 200; ++call)
        bad += data[call].wrong(std::vector<float>(kCounts[call % 6], 4.0F));
      return bad;
    });
    INFO("engine " << name_of(engine));
    CHECK(wrong[0] + wrong[1] + wrong[2] + wrong[3] == 0);
  }
}

TEST_CASE("threads as ranks: wrong device buffers are a UsageError before anything is sent",
          "[vgpu]") {
  const auto thrown = run_on_devices<int>(2, {}, [](ProcessGroup& g) {
    std::vector<float> host(100);
    const DeviceData<float> data(g, true, host);
    const bool one_device = connected_devices() == 1;  // then ranks share it
    const auto elsewhere = device_bytes(Device::cuda(g.rank() == 0 && !one_device ? 1 : 0), 400);
    const Buffer far(elsewhere.get(), Elements(100), DType::f32);
    int caught = 0;
    const auto expect = [&](const std::string& words, auto call) {
      try {
        call();
      } catch (const UsageError& error) {
        caught += std::string(error.what()).find(words) != std::string::npos ? 1 : 0;
      }
    };
    expect("one buffer is in host memory",
           [&] { g.all_reduce(std::span(host), data.buffer(), ReduceOp::sum); });
    if (!one_device) expect("but this rank's group is on", [&] { g.all_reduce(far); });
    expect("communication memory on cuda:7",
           [&] { (void)g.allocate_on(Device::cuda(7), Bytes(1)); });
    g.all_reduce(data.buffer());  // the group still works
    return caught + (one_device ? 1 : 0);
  });
  CHECK(thrown[0] == 3);
  CHECK(thrown[1] == 3);
}

TEST_CASE("threads as ranks: device memory on one rank and host memory on another is a mismatch",
          "[vgpu]") {
  CHECK_THROWS_WITH(
      run_on_devices<int>(2, {},
                          [](ProcessGroup& g) {
                            std::vector<float> host(100);
                            const DeviceData<float> data(g, true, host);
                            g.all_reduce(g.rank() == 0 ? Buffer(std::span(host)) : data.buffer());
                            return 0;
                          }),
      ContainsSubstring("rank 0 called all_reduce(sum, f32, 100) #0 at ") &&
          ContainsSubstring("but rank 1 called all_reduce(sum, f32, 100, device memory) #0 at "));
}

TEST_CASE("device communication memory is zeroed, aligned, and used again in stream order",
          "[vgpu]") {
  GroupOptions options;
  options.device = Device::cuda(0);
  const auto group = init_process_group(options);
  const Stream stream = Stream::current(Device::cuda(0));
  std::byte* first = nullptr;
  {
    const auto a = group->allocate_on(group->device(), MiB(3));
    const auto b = group->allocate_on(group->device(), Bytes(100));
    first = a->data();
    CHECK(reinterpret_cast<std::uintptr_t>(b->data()) % 64 == 0);
    CHECK(a->device() == Device::cuda(0));
    // The memset still runs while the memory is freed and allocated again.
    static std::chrono::milliseconds time(20);
    delay(stream, time);
    cuda_check(cudaMemsetAsync(first, 0xFF, 1000, stream.get()));
  }
  const StreamGuard other(Stream::create(Device::cuda(0)));
  const auto again = group->allocate_on(group->device(), MiB(2));
  CHECK(again->data() == first);
  std::vector<std::byte> bytes(1000);
  copy_on_device(bytes.data(), again->data(), bytes.size(), Device::cuda(0));
  CHECK(bytes == std::vector<std::byte>(1000));
  CHECK(group->allocate_on(Device::cpu(), Bytes(10))->device().is_cpu());
}

TEST_CASE("device communication memory and work outlive their group", "[vgpu]") {
  std::vector<std::shared_ptr<CommMemory>> memory(2);
  const auto works = run_on_devices<WorkPtr>(2, {}, [&](ProcessGroup& g) {
    auto& mine = memory[static_cast<std::size_t>(g.rank())];
    mine = g.allocate_on(g.device(), Bytes(40'000));
    const Buffer data(mine->data(), Elements(10'000), DType::f32);
    return g.all_reduce_async(data, data, ReduceOp::sum);
  });
  for (const WorkPtr& work : works) {
    CHECK(work->is_completed());
    CHECK_NOTHROW(work->host_wait());
  }
  float x = 1;
  copy_on_device(&x, memory[1]->data(), sizeof x, Device::cuda(1 % connected_devices()));
  CHECK(x == 0);
}
