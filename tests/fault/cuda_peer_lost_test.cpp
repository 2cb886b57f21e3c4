// A rank with a device is killed or hangs. All others name it, wherever their kernels and streams
// wait, and nothing is left behind.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <dirent.h>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/stream.hpp"
#include "tests/fault/fork_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr int kVictim = 1;
constexpr double kLimit = 5;  // seconds

GroupOptions on_devices(CudaEngine engine, int timeout_ms = 30'000) {
  GroupOptions options;
  options.device = Device::cuda(0);
  options.engine = engine;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  return options;
}

void die() { kill(getpid(), SIGKILL); }

void die_later(int microseconds) {
  std::thread([microseconds] {
    usleep(static_cast<useconds_t>(microseconds));
    die();
  }).detach();
}

// Blocks the stream for 15 s, three times as long as survivors may take.
void block_stream(const Stream& stream) {
  cuda_check(cudaLaunchHostFunc(
      stream.get(), [](void*) { std::this_thread::sleep_for(std::chrono::seconds(15)); }, nullptr));
}

struct Data {
  Data(ProcessGroup& g, std::size_t n)
      : memory(g.allocate_on(g.device(), Bytes(n * sizeof(float)))),
        buffer(memory->data(), Elements(n), DType::f32) {}
  std::shared_ptr<CommMemory> memory;
  Buffer buffer;
};

void check_survivors(const std::vector<Outcome>& outcomes) {
  const auto& victim = outcomes[kVictim];
  CHECK(victim.killed);
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (r == kVictim) continue;
    INFO("rank " << r << ": " << outcomes[r].error);
    CHECK(!outcomes[r].killed);
    CHECK_THAT(outcomes[r].error, ContainsSubstring("PeerLost"));
    CHECK_THAT(outcomes[r].error,
               ContainsSubstring("rank 1 (pid " + std::to_string(victim.pid) + " on "));
    CHECK(outcomes[r].peer == kVictim);
    CHECK(outcomes[r].seconds - victim.seconds < kLimit);
  }
}

std::size_t orphaned_sockets(const std::vector<Outcome>& outcomes) {
  std::ifstream table("/proc/net/unix");
  std::size_t n = 0;
  for (std::string line; std::getline(table, line);)
    for (const Outcome& o : outcomes)
      for (const char* owner : {"@ringsmith-", "@vgpu."})
        n += line.find(owner + std::to_string(o.pid)) != std::string::npos ? 1 : 0;
  return n;
}

// Counts a folder's entries, without Open MPI's segments, which may belong to other jobs.
std::size_t entries(const char* folder) {
  std::size_t n = 0;
  DIR* const dir = opendir(folder);
  if (dir == nullptr) return 0;
  while (const dirent* entry = readdir(dir))
    n += std::string(entry->d_name).rfind("vader_segment", 0) == 0 ? 0 : 1;
  closedir(dir);
  return n;
}

std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(maps, line);)
    n += line.find("memfd:") != std::string::npos ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("survivors of a rank killed among collectives on devices name it", "[fault][leaves]") {
  const std::size_t shm = entries("/dev/shm");
  for (const auto engine : {CudaEngine::stream, CudaEngine::kernel})
    for (const int world : {2, 3})
      for (const std::size_t count : {100, 20'000, 1'000'000})
        for (const int microseconds : {500, 20'000}) {
          INFO("engine " << name_of(engine) << ", world " << world << ", " << count
                         << " elements, killed after " << microseconds << " us");
          const auto outcomes = run_ranks(world, on_devices(engine), [&](ProcessGroup& g) {
            const Data data(g, count);
            g.barrier();
            if (g.rank() == kVictim) die_later(microseconds);
            for (int call = 0;; ++call) {
              const WorkPtr work = g.all_reduce_async(data.buffer, data.buffer, ReduceOp::sum);
              if (call % 2 == 0)
                work->host_wait();
              else
                work->wait();
            }
          });
          check_survivors(outcomes);
          CHECK(orphaned_sockets(outcomes) == 0);
        }
  CHECK(entries("/dev/shm") == shm);
}

TEST_CASE("survivors whose streams wait for a killed rank name it, and where they stood",
          "[fault]") {
  for (const auto engine : {CudaEngine::stream, CudaEngine::kernel})
    for (const std::size_t count : {100, 20'000}) {
      const auto outcomes = run_ranks(3, on_devices(engine), [&](ProcessGroup& g) {
        const Data data(g, count);
        g.barrier();
        // The victim makes the call, but its part of the collective never starts.
        if (g.rank() == kVictim) block_stream(Stream::current(g.device()));
        const WorkPtr work = g.all_reduce_async(data.buffer, data.buffer, ReduceOp::sum);
        work->wait();
        if (g.rank() == kVictim) die_later(50'000);
        work->host_wait();
      });
      INFO("engine " << name_of(engine) << ", " << count);
      check_survivors(outcomes);
      if (engine == CudaEngine::stream) continue;
      for (const std::size_t r : {0, 2})
        CHECK_THAT(outcomes[r].error,
                   ContainsSubstring("The kernel of rank " + std::to_string(r) + ", block ") &&
                       ContainsSubstring(", step ") && ContainsSubstring(" waited for "));
    }
}

TEST_CASE("the deadline on a device names the rank whose stream does not come on", "[fault]") {
  for (const auto engine : {CudaEngine::stream, CudaEngine::kernel}) {
    const auto outcomes = run_ranks(2, on_devices(engine, 300), [&](ProcessGroup& g) {
      const Data data(g, 50'000);
      g.barrier();
      if (g.rank() == kVictim) block_stream(Stream::current(g.device()));
      const WorkPtr work = g.all_reduce_async(data.buffer, data.buffer, ReduceOp::sum);
      if (g.rank() == kVictim) {
        // The victim stays alive, but is silent until long after the others have given up.
        std::this_thread::sleep_for(std::chrono::seconds(3));
        die();
      }
      work->host_wait();
    });
    INFO("engine " << name_of(engine) << ": " << outcomes[0].error);
    CHECK_THAT(outcomes[0].error, ContainsSubstring("TimeoutError") &&
                                      ContainsSubstring("has not ended 300 ms after") &&
                                      ContainsSubstring("a longer --timeout"));
    CHECK_THAT(outcomes[0].error, ContainsSubstring("all_reduce(sum, f32, 50000, device memory)"));
    CHECK(outcomes[0].peer == kVictim);
    CHECK(outcomes[0].seconds < 2.8);
  }
}

TEST_CASE("a device receiver names the sender that was killed", "[fault]") {
  check_survivors(run_ranks(2, on_devices(CudaEngine::stream), [](ProcessGroup& g) {
    const Data data(g, 10);
    g.barrier();
    if (g.rank() == kVictim) die();
    g.recv(data.buffer, kVictim);
  }));
}

TEST_CASE("a process may make and end groups on devices forever: nothing piles up", "[fault]") {
  ForkedRanks ranks(2, [](std::shared_ptr<Bootstrap> bootstrap, ForkedRanks&) {
    std::size_t files = 0, mappings = 0, in_use = 0;
    for (int turn = 0; turn < 6; ++turn) {
      GroupOptions options = on_devices(turn % 2 == 0 ? CudaEngine::stream : CudaEngine::kernel);
      options.device = Device::cuda(bootstrap->rank());
      const DeviceGuard guard(options.device);
      {
        const auto group = init_process_group(bootstrap, options);
        const Data data(*group, 100'000);
        for (int call = 0; call < 3; ++call) group->all_reduce(data.buffer);
      }
      std::size_t free_bytes = 0, all = 0;
      cuda_check(cudaMemGetInfo(&free_bytes, &all));
      if (turn >= 4) {
        require(entries("/proc/self/fd") <= files, "file descriptors pile up");
        require(shared_mappings() <= mappings, "mappings pile up");
        require(all - free_bytes <= in_use, "device memory piles up");
      }
      files = std::max(files, entries("/proc/self/fd"));
      mappings = std::max(mappings, shared_mappings());
      in_use = std::max(in_use, all - free_bytes);
    }
  });
  for (const Ending& ending : ranks.wait_for_all(std::chrono::seconds(20))) {
    INFO(ending.errors);
    CHECK(ending.exited);
    CHECK(ending.code == 0);
  }
}

TEST_CASE("survivors give back what a group that has failed held of their device and their peers",
          "[fault]") {
  for (const auto engine : {CudaEngine::stream, CudaEngine::kernel}) {
    ForkedRanks ranks(3, [&](std::shared_ptr<Bootstrap> bootstrap, ForkedRanks&) {
      GroupOptions options = on_devices(engine);
      options.device = Device::cuda(bootstrap->rank());
      const DeviceGuard guard(options.device);
      {
        // The first group also creates objects that remain until the process ends.
        const auto group = init_process_group(bootstrap, options);
        const Data data(*group, 100'000);
        group->all_reduce(data.buffer);
      }
      std::size_t before = 0, after = 0, all = 0;
      cuda_check(cudaMemGetInfo(&before, &all));
      const std::size_t files = entries("/proc/self/fd"), mappings = shared_mappings();
      try {
        const auto group = init_process_group(bootstrap, options);
        const Data data(*group, 100'000);
        group->all_reduce(data.buffer);
        if (group->rank() == kVictim) block_stream(Stream::current(group->device()));
        const WorkPtr work = group->all_reduce_async(data.buffer, data.buffer, ReduceOp::sum);
        work->wait();
        if (group->rank() == kVictim) die();
        work->host_wait();
        throw Error("the death of a peer went unnoticed");
      } catch (const PeerLost&) {
      }
      cuda_check(cudaMemGetInfo(&after, &all));
      require(after == before, "device memory was not given back");
      require(entries("/proc/self/fd") <= files, "file descriptors were not given back");
      require(shared_mappings() <= mappings, "mappings were not given back");
    });
    const auto endings = ranks.wait_for_all(std::chrono::seconds(20));
    for (std::size_t r = 0; r < endings.size(); ++r) {
      if (r == kVictim) continue;
      INFO("engine " << name_of(engine) << ", rank " << r << ": " << endings[r].errors);
      CHECK(endings[r].code == 0);
    }
    CHECK(!endings[kVictim].exited);
  }
}
