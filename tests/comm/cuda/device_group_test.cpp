// Tests groups on devices, with ranks as threads. In every kind of buffer, both engines must
// produce the host transport's bits, and other work on the streams must not affect them.
#include <atomic>
#include <cstdio>
#include <filesystem>

#include "runtime/base/error.hpp"
#include "runtime/comm/device_process_group.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/transfer.hpp"
#include "tests/comm/cuda/device_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr CudaEngine kEngines[] = {CudaEngine::stream, CudaEngine::kernel};

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

// Returns the number of elements that differ between all_reduce on device and host.
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
    for (const int world : {1, 2, 3, 5, 7}) {
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

TEMPLATE_TEST_CASE("threads as ranks: every reduction of every type has the host's bits", "[vgpu]",
                   float, f16, bf16, double, std::int32_t, std::int64_t, std::uint8_t) {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto wrong = run_on_devices<std::size_t>(3, options, [](ProcessGroup& g) {
      std::size_t bad = 0;
      for (const auto op :
           {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
        if (op == ReduceOp::avg && std::is_integral_v<TestType>) continue;
        for (const auto algorithm : {Algorithm::ring, Algorithm::direct})
          for (const std::size_t count : {100, 40'003})
            for (const bool own : {false, true})
              bad += compare_with_host<TestType>(g, {op, algorithm, count, own ? 1U : 0U, own});
      }
      return bad;
    });
    INFO("engine " << name_of(engine));
    CHECK(sum_of(wrong) == 0);
  }
}

TEST_CASE("threads as ranks: reduce_scatter and reduce have the host's bits", "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto wrong = run_on_devices<std::size_t>(4, options, [](ProcessGroup& g) {
      std::size_t bad = 0;
      const auto world = static_cast<std::size_t>(g.size());
      for (const auto algorithm : {Algorithm::ring, Algorithm::direct, Algorithm::tree})
        for (const std::size_t part : {1, 257, 9001})
          for (const bool own : {false, true}) {
            g.set_algorithm(algorithm);
            const auto mine = random_values<float>(part * world, g.rank());
            const DeviceData<float> input(g, own, mine), whole(g, own, mine);
            if (algorithm != Algorithm::tree) {
              std::vector<float> answer(part);
              g.reduce_scatter(ConstBuffer(std::span(mine)), std::span(answer), ReduceOp::sum);
              const DeviceData<float> output(g, own, std::vector<float>(part));
              g.reduce_scatter(input.buffer(), output.buffer(), ReduceOp::sum);
              bad += output.wrong(answer) + input.wrong(mine);
            }
            if (algorithm != Algorithm::ring) {
              std::vector<float> answer(mine.size());
              g.reduce(ConstBuffer(std::span(mine)), std::span(answer), ReduceOp::sum, 2);
              const DeviceData<float> output(g, own, std::vector<float>(mine.size()));
              g.reduce(input.buffer(), output.buffer(), ReduceOp::sum, 2);
              bad += output.wrong(answer) + input.wrong(mine);
            }
          }
      return bad;
    });
    INFO("engine " << name_of(engine));
    CHECK(sum_of(wrong) == 0);
  }
}

TEST_CASE("threads as ranks: ranks that share one device use either engine", "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto wrong = run_on_devices<std::size_t>(
        3, options,
        [](ProcessGroup& g) {
          std::size_t bad = 0;
          for (const auto algorithm : {Algorithm::automatic, Algorithm::ring, Algorithm::direct})
            for (const std::size_t count : {7, 30'011})
              for (const bool own : {false, true}) {
                const Case c{ReduceOp::max, algorithm, count, 0, own, own};
                bad += compare_with_host<double>(g, c);
              }
          return bad;
        },
        1);
    INFO("engine " << name_of(engine));
    CHECK(sum_of(wrong) == 0);
  }
}

TEST_CASE("threads as ranks: device messages keep their order, beyond what the slots hold",
          "[vgpu]") {
  const auto wrong = run_on_devices<std::size_t>(2, {}, [](ProcessGroup& g) {
    std::size_t bad = 0;
    for (unsigned i = 0; i < 6; ++i) {
      const std::size_t n = 1 + i * 200'000;
      const auto sent = random_values<float>(n, 0, i);
      if (g.rank() == 0) {
        const DeviceData<float> data(g, i % 2 == 0, sent);
        g.send(data.buffer(), 1);
        bad += data.wrong(sent);
      } else {
        const DeviceData<float> data(g, i % 2 == 1, std::vector<float>(n));
        g.recv(data.buffer(), 0);
        bad += data.wrong(sent);
      }
    }
    return bad;
  });
  CHECK(sum_of(wrong) == 0);
}

TEST_CASE("threads as ranks: packets go on when the number of the call comes round", "[vgpu]") {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  std::vector<std::size_t> wrong(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions options;
      options.device = Device::cuda(rank % connected_devices());
      options.engine = CudaEngine::kernel;
      cuda_ipc::Tuning tuning;
      tuning.packet_calls = ~std::uint32_t{0} - 3;
      DeviceProcessGroup group(std::make_shared<ThreadBootstrap>(rendezvous, rank), options,
                               tuning);
      const DeviceGuard guard(group.device());
      for (std::size_t call = 0; call < 8; ++call)
        wrong[static_cast<std::size_t>(rank)] += compare_with_host<float>(
            group, {ReduceOp::sum, call % 2 == 0 ? Algorithm::ring : Algorithm::automatic,
                    500 - 50 * call});
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong[0] + wrong[1] == 0);
}

// The group's threads launch, wait and query events during the capture.
TEST_CASE("threads as ranks: a group at work does not end its callers' captures", "[vgpu]") {
  for (const CudaEngine engine : kEngines) {
    GroupOptions options;
    options.engine = engine;
    const auto ends = run_on_devices<cudaError_t>(2, options, [](ProcessGroup& g) {
      const DeviceData<float> data(g, true, std::vector<float>(20'000, 1.0F));
      const Stream captured = Stream::create(g.device());
      std::vector<WorkPtr> works;
      for (int call = 0; call < 10; ++call)
        works.push_back(g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::max));
      cuda_check(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      cudaGraph_t graph = nullptr;
      const cudaError_t end = cudaStreamEndCapture(captured.get(), &graph);
      if (graph != nullptr) cuda_check(cudaGraphDestroy(graph));
      (void)cudaGetLastError();
      for (const WorkPtr& work : works) work->host_wait();
      return end;
    });
    INFO("engine " << name_of(engine));
    for (const cudaError_t end : ends) CHECK(end == cudaSuccess);
  }
}

#ifdef RINGSMITH_VGPU
TEST_CASE("ranks on a small device", "[.][resident]") {
  GroupOptions options;
  options.engine = CudaEngine::kernel;
  options.timeout = std::chrono::seconds(5);
  for (const int world : {2, 3}) {
    try {
      const auto wrong = run_on_devices<std::size_t>(
          world, options,
          [](ProcessGroup& g) {
            return compare_with_host<float>(g, {.algorithm = Algorithm::ring, .count = 5000});
          },
          1);
      std::printf("%d ranks: %zu wrong\n", world, sum_of(wrong));
    } catch (const UsageError& error) {
      std::puts(error.what());  // Catch would break the line
    }
  }
}

// Each rank has two blocks, and a device has four multiprocessors.
TEST_CASE("ranks whose blocks a device cannot hold together are refused, before they hang",
          "[vgpu]") {
  const testing::ProgramResult run = testing::run_program(
      {"env", "VGPU_RESIDENT=1", "VGPU_DEVICES=1",
       std::filesystem::read_symlink("/proc/self/exe").string(), "[resident]"});
  CHECK_THAT(run.out,
             ContainsSubstring("2 ranks: 0 wrong") &&
                 ContainsSubstring("kernel engine: the 3 ranks on device ") &&
                 ContainsSubstring("(vgpu) would run 6 blocks that wait for each other, and the "
                                   "device holds 4 such blocks simultaneously"));
}
#endif

TEST_CASE("threads as ranks: a ring's slots are allocated for its first message", "[vgpu]") {
  if (connected_devices() < 2) {
    WARN("not run: ranks share a device, so that their allocations cannot be told apart");
    return;
  }
  constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  std::vector<std::vector<std::size_t>> more(2);  // bytes of each rank after each call
  std::vector<std::size_t> wrong(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions options;
      options.device = Device::cuda(rank);
      options.engine = CudaEngine::kernel;
      DeviceProcessGroup group(std::make_shared<ThreadBootstrap>(rendezvous, rank), options,
                               {.shape = {1, 32, kSlotBytes}});
      const DeviceGuard guard(group.device());
      const auto used = [] {
        std::size_t free = 0, total = 0;
        cuda_check(cudaMemGetInfo(&free, &total));
        return total - free;
      };
      const auto i = static_cast<std::size_t>(rank);
      std::size_t before = 0;
      for (const auto algorithm : {Algorithm::automatic, Algorithm::automatic, Algorithm::direct,
                                   Algorithm::ring, Algorithm::ring, Algorithm::gloo_ring}) {
        const std::size_t count = more[i].empty() ? 100 : 20'011;  // packets, then more
        wrong[i] += compare_with_host<float>(group, {ReduceOp::sum, algorithm, count});
        if (before == 0) before = used();  // the first call has allocated a region for the data
        more[i].push_back(used() - before);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong[0] + wrong[1] == 0);
  constexpr std::size_t kSlots = cuda_ipc::kRingSlots * kSlotBytes;
  for (const auto& of_rank : more)
    CHECK(of_rank == std::vector<std::size_t>{0, 0, 0, kSlots, kSlots, 2 * kSlots});
}

// With VGPU_DRIVER_WAITS=1 (entry comm_cuda_driver_waits), an allocation waits for running kernels,
// and launches wait for the allocation. An allocation between two ranks' launches of one collective
// would deadlock.
TEST_CASE(
    "ranks of one process allocate and free on one device while their kernels wait for each other",
    "[vgpu][driver]") {
  GroupOptions options;
  options.engine = CudaEngine::kernel;
  options.timeout = std::chrono::seconds(20);
  const auto wrong = run_on_devices<std::size_t>(
      3, options,
      [](ProcessGroup& g) {
        std::size_t bad = 0;
        for (int round = 0; round < 40; ++round) {
          // The fourth round allocates the slots of the ring.
          const std::size_t count = round % 4 < 2 ? 3000 : 10'007;
          g.set_algorithm(round % 4 == 3 ? Algorithm::ring : Algorithm::automatic);
          const auto mine = random_values<float>(count, g.rank());
          const DeviceData<float> data(g, true, mine);
          const auto work = g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::max);
          for (int i = 0; i < 3; ++i) {
            device_allocator::free(g.device(), device_allocator::allocate(g.device(), Bytes(100)));
            device_allocator::release_cached(g.device());
          }
          const PinnedBlock pinned(Bytes(std::size_t{1} << (12 + round % 8)));
          work->wait();
          Stream::current().synchronize();
          std::vector<float> want = mine;
          for (int r = 0; r < g.size(); ++r) {
            const auto theirs = random_values<float>(count, r);
            for (std::size_t i = 0; i < want.size(); ++i) want[i] = std::max(want[i], theirs[i]);
          }
          bad += data.wrong(want);
        }
        return bad;
      },
      1);
  CHECK(sum_of(wrong) == 0);
}

// With VGPU_DRIVER_WAITS=1, the first launch of a kernel that is not loaded waits for running
// kernels, and other launches wait for it. A first launch by one group between two ranks' launches
// of the other group would deadlock.
TEST_CASE("a group uses new types while another group's kernels wait for each other",
          "[vgpu][driver]") {
  GroupOptions options;
  options.engine = CudaEngine::kernel;
  options.timeout = std::chrono::seconds(20);
  const auto wrong = run_on_devices<std::size_t>(
      2, options,
      [](ProcessGroup& g) {
        const auto other = g.split(0);
        std::size_t bad = 0, bad_beside = 0;
        std::thread beside([&] {
          const DeviceGuard guard(g.device());
          const StreamGuard stream(Stream::create(g.device()));
          try {
            for (const auto algorithm : {Algorithm::ring, Algorithm::direct})
              for (const std::size_t count : {100, 40'003}) {
                const Case c{.op = ReduceOp::max, .algorithm = algorithm, .count = count};
                bad_beside += compare_with_host<f16>(*other, c) +
                              compare_with_host<bf16>(*other, c) +
                              compare_with_host<double>(*other, c) +
                              compare_with_host<std::int32_t>(*other, c) +
                              compare_with_host<std::int64_t>(*other, c) +
                              compare_with_host<std::uint8_t>(*other, c);
              }
          } catch (const Error& error) {
            std::fprintf(stderr, "%s\n", error.what());
            bad_beside = 1;
          }
        });
        for (int round = 0; round < 60; ++round)
          bad += compare_with_host<float>(g, {.algorithm = Algorithm::ring, .count = 3000});
        beside.join();
        return bad + bad_beside;
      },
      1);
  CHECK(sum_of(wrong) == 0);
}

// With VGPU_DRIVER_WAITS=1, the allocation waits for rank 0's kernel, and the monitor in
// cudaEventQuery waits for the allocation. Without the variable, the monitor would tell the kernel
// to stop.
TEST_CASE("a kernel gives up by its own clock while the driver holds up its host",
          "[vgpu][driver]") {
  GroupOptions options;
  options.engine = CudaEngine::kernel;
  options.timeout = std::chrono::seconds(3);
  std::atomic<bool> open{false};
  // Keeps the blocks until the end, because freeing one would wait for all streams.
  std::vector<std::shared_ptr<std::byte>> blocks;
  const auto said = run_on_devices<std::string>(
      2, options,
      [&](ProcessGroup& g) {
        const DeviceData<float> data(g, true, std::vector<float>(100, 1.0F));
        if (g.rank() == 1)
          cuda_check(cudaLaunchHostFunc(
              Stream::current().get(),
              [](void* opened) {
                while (!*static_cast<std::atomic<bool>*>(opened))
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
              },
              &open));
        const WorkPtr work = g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum);
        work->wait();
        while (g.rank() == 0 && !work->is_completed()) {
          blocks.push_back(device_bytes(g.device(), 4));
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::string what;
        try {
          work->host_wait();
        } catch (const TimeoutError& error) {
          what = error.what();
        }
        if (g.rank() == 0) open = true;
        return what;
      },
      1);
  for (const std::string& what : said)
    CHECK_THAT(what, ContainsSubstring("The kernel of rank 0") &&
                         ContainsSubstring("waited for a packet from rank 1"));
}

TEST_CASE("threads as ranks: nodes of different sizes keep peer access within each node",
          "[vgpu]") {
  GroupOptions options;
  options.ranks_per_node = 2;
  const auto wrong = run_on_devices<std::size_t>(5, options, [](ProcessGroup& g) {
    const auto node = g.split(g.rank() / 2);
    std::size_t bad = 0;
    for (ProcessGroup* group : {&g, node.get()}) {
      bad += dynamic_cast<DeviceProcessGroup&>(*group).engine() != CudaEngine::automatic ? 0 : 1;
      bad += compare_with_host<float>(*group, {.algorithm = Algorithm::ring, .count = 1031});
    }
    return bad;
  });
  CHECK(sum_of(wrong) == 0);
}
