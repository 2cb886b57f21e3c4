// Tests all_reduce on the GPUs of several emulated nodes (GroupOptions::ranks_per_node): threads as
// ranks, TCP between nodes, peer access within them. The device results must have the bits of
// hierarchical_in_pieces() in the reference executor, and the bytes sent must match that schedule.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/device_process_group.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "tests/comm/cuda/device_ranks.hpp"
#include "tests/comm/reference_executor.hpp"
#include "tests/multi/data.hpp"
#include "tests/support/catch.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/counters.hpp"
#endif

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

struct Nodes {
  int nodes, per_node;
  int missing = 0;  // from the last node
  [[nodiscard]] int world() const { return nodes * per_node - missing; }
  [[nodiscard]] int size_of_node(int rank) const {
    return rank / per_node == nodes - 1 ? per_node - missing : per_node;
  }
  [[nodiscard]] GroupOptions options(CudaEngine engine = CudaEngine::automatic) const {
    GroupOptions options;
    options.ranks_per_node = per_node;
    options.engine = engine;
    return options;
  }
};

constexpr std::size_t kPart = (std::size_t{1} << 20) / sizeof(float);  // nodes_backend.cpp

// The sums of f32 values by the schedule, with each contribution multiplied by `factor` first.
const std::vector<float>& by_schedule(const Nodes& nodes, std::size_t count, float factor) {
  static std::map<std::tuple<int, int, int, std::size_t, float>, std::vector<float>> known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& result = known[{nodes.nodes, nodes.per_node, nodes.missing, count, factor}];
  if (result.empty() && count > 0) {
    comm::testing::Buffers inputs;
    for (int r = 0; r < nodes.world(); ++r) {
      inputs.push_back(random_values<float>(count, r));
      for (float& x : inputs.back()) x *= factor;
    }
    const auto schedule = hierarchical_in_pieces(nodes.world(), count,
                                                 nodes_of(nodes.world(), nodes.per_node), kPart);
    result = comm::testing::execute(schedule, inputs)[0];
  }
  return result;
}

// Returns the number of wrong sums. If brief, tries only avg in place in communication memory, and
// sum from one ordinary buffer to another; otherwise all combinations.
std::size_t wrong_sums(ProcessGroup& g, const Nodes& nodes, std::size_t count, bool brief = false) {
  std::size_t bad = 0;
  const auto mine = random_values<float>(count, g.rank());
  for (const auto op : {ReduceOp::sum, ReduceOp::avg})
    for (const bool own : {false, true})
      for (const bool in_place : {false, true}) {
        if (brief && (own != in_place || own != (op == ReduceOp::avg))) continue;
        const float factor = op == ReduceOp::avg ? 1.0F / static_cast<float>(g.size()) : 1.0F;
        const std::vector<float>& answer = by_schedule(nodes, count, factor);
        const DeviceData<float> input(g, own, mine, own ? 0 : 4);
        if (in_place) {
          g.all_reduce(input.buffer(), op);
          bad += input.wrong(answer);
        } else {
          const DeviceData<float> output(g, own, std::vector<float>(count), 8);
          g.all_reduce(input.buffer(), output.buffer(), op);
          bad += output.wrong(answer) + input.wrong(mine);
        }
      }
  return bad;
}

template <class T>
std::size_t wrong_values(ProcessGroup& g, ReduceOp op, std::size_t count, unsigned seed) {
  Guarded<T> data(g, seed % 2 == 0, count, seed % 2 * sizeof(T));
  data.fill([&](std::size_t i) { return contribution<T>(op, g.size(), g.rank(), i, seed); });
  g.all_reduce(data.buffer(), op);
  return data.wrong([&](std::size_t i) { return expected<T>(op, g.size(), i, seed); });
}

std::size_t sum_of(const std::vector<std::size_t>& wrong) {
  std::size_t all = 0;
  for (const std::size_t w : wrong) all += w;
  return all;
}

// The ranks of all emulated nodes share the devices of this host, and a real device may not hold
// the kernels of several ranks.
std::vector<CudaEngine> engines() {
#ifndef RINGSMITH_VGPU
  if (connected_devices() < 8) {
    WARN("kernel engine not run: the emulated nodes need 8 devices");
    return {CudaEngine::stream};
  }
#endif
  return {CudaEngine::stream, CudaEngine::kernel};
}

std::string engine_of(ProcessGroup& g) {
  return std::string(name_of(dynamic_cast<DeviceProcessGroup&>(g).engine()));
}

// Runs on one device for each rank of a node, as in a real cluster: rank r of every node uses
// device r.
template <class Result>
std::vector<Result> run_on_nodes(const Nodes& nodes, const GroupOptions& options,
                                 const std::function<Result(ProcessGroup&)>& body) {
  return run_on_devices<Result>(nodes.world(), options, body);
}

}  // namespace

TEST_CASE("nodes of GPUs: all_reduce has the bits of its schedule, with either engine",
          "[vgpu][nodes]") {
  for (const CudaEngine engine : engines())
    for (const Nodes nodes : {Nodes{2, 2}, Nodes{2, 3}, Nodes{2, 4}, Nodes{3, 2}, Nodes{2, 3, 1},
                              Nodes{2, 4, 3}, Nodes{3, 3, 1}, Nodes{3, 2, 1}}) {
      const auto wrong =
          run_on_nodes<std::size_t>(nodes, nodes.options(engine), [&](ProcessGroup& g) {
            const CudaEngine used = nodes.size_of_node(g.rank()) == 1 ? CudaEngine::stream : engine;
            std::size_t bad = engine_of(g) == name_of(used) ? 0 : 1;
            for (const std::size_t count : {4099, 20'011, 100'003})
              bad += wrong_sums(g, nodes, count);
            return bad;
          });
      INFO(name_of(engine) << " engine, " << nodes.nodes << " nodes of " << nodes.per_node
                           << ", missing " << nodes.missing);
      CHECK(sum_of(wrong) == 0);
    }
}

TEST_CASE("nodes of GPUs: several pieces, whole ones and a rest", "[vgpu][nodes]") {
  const Nodes nodes{2, 2};
  const auto wrong = run_on_nodes<std::size_t>(nodes, nodes.options(), [&](ProcessGroup& g) {
    // 1, 2, 5 and 5 pieces: whole ones, a short one and a rest of one element.
    return wrong_sums(g, nodes, 2 * kPart, true) + wrong_sums(g, nodes, 4 * kPart, true) +
           wrong_sums(g, nodes, 7 * kPart + 3, true) + wrong_sums(g, nodes, 8 * kPart + 1, true);
  });
  CHECK(sum_of(wrong) == 0);
  for (const Nodes uneven : {Nodes{2, 3, 1}, Nodes{2, 3, 2}}) {
    const auto bad = run_on_nodes<std::size_t>(uneven, uneven.options(), [&](ProcessGroup& g) {
      return wrong_sums(g, uneven, 2 * kPart, true) + wrong_sums(g, uneven, 4 * kPart + 5, true);
    });
    CHECK(sum_of(bad) == 0);
  }
}

TEMPLATE_TEST_CASE("nodes of GPUs: every reduction of every type", "[vgpu][nodes]", float, f16,
                   bf16, double, std::int32_t, std::int64_t, std::uint8_t) {
  for (const Nodes nodes : {Nodes{2, 2}, Nodes{2, 3}, Nodes{2, 3, 1}, Nodes{2, 2, 1}}) {
    const auto wrong = run_on_nodes<std::size_t>(nodes, nodes.options(), [](ProcessGroup& g) {
      std::size_t bad = 0;
      unsigned seed = 0;
      for (const auto op :
           {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
        if (op == ReduceOp::avg && std::is_integral_v<TestType>) continue;
        for (const std::size_t count : {0, 1, 2, 3, 5, 6, 1031, 40'003, 65'536})
          bad += wrong_values<TestType>(g, op, count, seed++);
      }
      return bad;
    });
    CHECK(sum_of(wrong) == 0);
  }
}

TEST_CASE("nodes of GPUs: any size by name, the other collectives and algorithms, many calls",
          "[vgpu][nodes]") {
  const Nodes nodes{2, 2};
  const auto wrong = run_on_nodes<std::size_t>(nodes, nodes.options(), [&](ProcessGroup& g) {
    std::size_t bad = 0;
    g.set_algorithm(Algorithm::hierarchical);  // automatic: small calls take one hand-off instead
    for (const std::size_t count : {0, 1, 2, 3, 4, 5, 7, 1031}) bad += wrong_sums(g, nodes, count);
    for (const auto algorithm : {Algorithm::ring, Algorithm::direct, Algorithm::tree}) {
      g.set_algorithm(algorithm);
      bad += wrong_values<float>(g, ReduceOp::sum, 9000, 7);
    }
    g.set_algorithm(Algorithm::automatic);
    for (unsigned call = 0; call < 60; ++call)
      bad += wrong_values<float>(g, ReduceOp::sum, call % 4 == 0 ? 100 : 5000 + 977 * call, call);
    std::vector<WorkPtr> works;
    std::vector<Guarded<float>> data;
    for (unsigned call = 0; call < 12; ++call) {
      data.emplace_back(g, call % 2 == 0, call % 3 == 0 ? 9 : 30'001);
      data.back().fill([&](std::size_t i) {
        return contribution<float>(ReduceOp::sum, g.size(), g.rank(), i, call);
      });
    }
    for (auto& d : data) works.push_back(g.all_reduce_async(d.buffer(), d.buffer(), ReduceOp::sum));
    for (std::size_t call = 0; call < works.size(); ++call) {
      if (call % 2 == 0)
        works[call]->wait();
      else
        works[call]->host_wait();
      bad += data[call].wrong([&](std::size_t i) {
        return expected<float>(ReduceOp::sum, g.size(), i, static_cast<unsigned>(call));
      });
    }
    Guarded<float> message(g, true, 5000);
    message.fill(
        [&](std::size_t i) { return static_cast<float>(i) + static_cast<float>(g.rank()); });
    g.broadcast(message.buffer(), 3);
    bad += message.wrong([&](std::size_t i) { return static_cast<float>(i) + 3.0F; });
    return bad;
  });
  CHECK(sum_of(wrong) == 0);
}

#ifdef RINGSMITH_VGPU
// Bytes of one all_reduce in place: sent by each rank to the other node, and copied by all ranks
// between device and host.
struct Counted {
  double sent = 0, copied = 0;
  std::uint64_t rings = 0;  // kernels of the ring within a node, of all ranks
};

TEST_CASE("nodes of GPUs: a rank sends 2 (n - 1) / n of its part, and copies the part twice",
          "[vgpu][nodes]") {
  for (const Nodes nodes :
       {Nodes{2, 2}, Nodes{2, 4}, Nodes{3, 2}, Nodes{2, 3, 1}, Nodes{2, 4, 3}}) {
    const std::size_t count = std::size_t{12} * 64 * 1024;  // 3 MiB
    const auto measure = [&](Algorithm algorithm) {
      return run_on_nodes<Counted>(nodes, nodes.options(CudaEngine::kernel), [&](ProcessGroup& g) {
        g.set_algorithm(algorithm);
        const DeviceData<float> data(g, true, std::vector<float>(count, 1.0F));
        g.all_reduce(data.buffer(), ReduceOp::max);  // the first call allocates
        Stream::current().synchronize();
        g.barrier();
        if (g.rank() == 0) (void)vgpu::take_counts();
        g.barrier();
        const Bytes before = g.sent_between_nodes();
        g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::max)->host_wait();
        Counted counted;
        counted.sent = static_cast<double>((g.sent_between_nodes() - before).value);
        g.barrier();
        if (g.rank() == 0)
          for (const vgpu::Count& c : vgpu::take_counts()) {
            if (c.name == "copy") counted.copied += static_cast<double>(c.bytes);
            if (c.name.find("ring") != std::string::npos) counted.rings += c.runs;
          }
        return counted;
      });
    };
    const double n = nodes.nodes, world = nodes.world();
    const double bytes = static_cast<double>(count) * sizeof(float);
    const auto now = measure(Algorithm::automatic), before = measure(Algorithm::direct);
    INFO(nodes.nodes << " nodes of " << nodes.per_node << ", missing " << nodes.missing);
    std::uint64_t in_nodes = 0;  // ranks that are not alone in their node
    for (int rank = 0; rank < nodes.world(); ++rank) {
      const int size = nodes.size_of_node(rank);
      const double part = 2 * (n - 1) / n * bytes / size;
      CAPTURE(rank, size);
      CHECK(now[at(rank)].sent >= part);
      CHECK(now[at(rank)].sent <=
            part * 1.01 + 20'000);  // counters, the agreement barrier, the board
      in_nodes += size > 1 ? 1 : 0;
      // By other algorithms, each rank sends its share to each rank of the other nodes.
      CHECK(before[at(rank)].sent >= 0.99 * 2 * bytes * (world - size) / world);
    }
    CHECK(now[0].copied == n * 2 * bytes);
    CHECK(now[0].rings >= 2 * in_nodes);
    // Through host memory, as with other algorithms: each rank copies the whole message to the host
    // and back.
    CHECK(before[0].copied == world * 2 * bytes);
    CHECK(before[0].rings == 0);
    std::printf(
        "%d nodes of %d, missing %d, %.1f MB: sent by rank 0 %.3f MB (direct %.3f MB), copied by "
        "all "
        "%.1f MB (%.1f MB), %llu ring kernels\n",
        nodes.nodes, nodes.per_node, nodes.missing, bytes / 1e6, now[0].sent / 1e6,
        before[0].sent / 1e6, now[0].copied / 1e6, before[0].copied / 1e6,
        static_cast<unsigned long long>(now[0].rings));
  }
}
#endif

TEST_CASE("nodes of GPUs: the description says how, and --engine is obeyed or refused",
          "[vgpu][nodes]") {
  const auto described = [](const Nodes& nodes) {
    return run_on_nodes<std::string>(nodes, nodes.options(), [](ProcessGroup& g) {
      std::string all;
      for (const std::string& line : g.describe_transport()) all += line + "\n";
      return all;
    });
  };
  const Nodes nodes{2, 2};
  for (const std::string& text : described(nodes))
    CHECK_THAT(text, ContainsSubstring("within each node: transport cuda_ipc: ") &&
                         ContainsSubstring("each of a node's 2 ranks sends its part"));
  const auto uneven = described({2, 3, 2});
  CHECK_THAT(uneven[0], ContainsSubstring("within each node: transport cuda_ipc: ") &&
                            ContainsSubstring("each of a node's 3 ranks sends its part"));
  CHECK_THAT(uneven[3], ContainsSubstring("within each node: transport: one rank, no peers") &&
                            ContainsSubstring("the node's only rank sends its values"));
  GroupOptions options = nodes.options(CudaEngine::stream);
  options.ranks_per_node = 1;
  CHECK_THROWS_WITH(
      run_on_nodes<int>(nodes, options, [](ProcessGroup&) { return 0; }),
      ContainsSubstring("every node has one rank") && ContainsSubstring("leave --engine out"));
}

namespace {

// Returns the error that each rank's all_reduce threw; rank `odd` runs another body.
std::vector<std::string> errors_of(const Nodes& nodes, std::chrono::milliseconds timeout, int odd,
                                   const std::function<void(ProcessGroup&, Buffer)>& other) {
  GroupOptions options = nodes.options(engines().back());
  options.timeout = timeout;
  std::atomic<int> ended{0};
  return run_on_nodes<std::string>(nodes, options, [&](ProcessGroup& g) {
    const DeviceData<float> data(g, true, std::vector<float>(30'000, 1.0F));
    g.all_reduce(data.buffer());
    std::string said = "no error";
    try {
      if (g.rank() == odd) {
        other(g, data.buffer());
      } else {
        g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum)->host_wait();
      }
    } catch (const Error& error) {
      said = error.what();
    }
    ++ended;
    for (int i = 0; i < 2000 && ended < nodes.world();
         ++i)  // no rank leaves before all have failed
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return said;
  });
}

// Blocks the current stream until `open`, for 20 seconds at most, so that a test that fails ends.
void block_stream(std::atomic<bool>& open) {
  cuda_check(cudaLaunchHostFunc(
      Stream::current().get(),
      [](void* opened) {
        for (int i = 0; i < 20'000 && !*static_cast<std::atomic<bool>*>(opened); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      &open));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("nodes of GPUs: errors name the rank, the peer and the call", "[vgpu][nodes]") {
  const Nodes nodes{2, 2};
  using std::chrono::milliseconds;
  const auto mismatch = errors_of(nodes, milliseconds(20'000), 2, [](ProcessGroup& g, Buffer data) {
    g.all_reduce(Buffer(data.data(), Elements(20'000), DType::f32));
  });
  for (const std::string& said : mismatch)
    CHECK_THAT(said,
               ContainsSubstring("rank 0 called all_reduce(sum, f32, 30000, device memory)") &&
                   ContainsSubstring("but rank 2 called all_reduce(sum, f32, 20000"));

  const auto late = errors_of(nodes, milliseconds(1000), 3, [](ProcessGroup&, Buffer) {
    std::this_thread::sleep_for(milliseconds(3000));
  });
  for (int r = 0; r < 3; ++r)
    CHECK_THAT(late[at(r)], ContainsSubstring("To blame: rank 3") &&
                                ContainsSubstring("all_reduce(sum, f32, 30000, device memory)"));

  const auto aborted = errors_of(nodes, milliseconds(20'000), 1, [](ProcessGroup& g, Buffer) {
    std::this_thread::sleep_for(milliseconds(100));
    g.abort();
  });
  for (const int r : {0, 2, 3})
    CHECK_THAT(aborted[at(r)], ContainsSubstring("rank 1 called abort()"));
}

// Rank 3 makes the call, but its stream is blocked before the data is ready: its node's sum hangs
// in the kernel, and the other node waits for that node on the network.
TEST_CASE("nodes of GPUs: a device that is stuck ends the call on both nodes", "[vgpu][nodes]") {
  const Nodes nodes{2, 2};
  std::atomic<bool> open{false};
  const auto begin = std::chrono::steady_clock::now();
  const auto said =
      errors_of(nodes, std::chrono::milliseconds(1500), 3, [&](ProcessGroup& g, Buffer data) {
        block_stream(open);
        try {
          g.all_reduce_async(data, data, ReduceOp::sum)->host_wait();
        } catch (const Error&) {
          open = true;
          throw;
        }
        open = true;
      });
  for (const std::string& text : said) {
    CHECK_THAT(text, ContainsSubstring("all_reduce(sum, f32, 30000, device memory) #1") ||
                         ContainsSubstring("no error"));
    CHECK_THAT(text, !ContainsSubstring("no error"));
    CHECK_THAT(text, ContainsSubstring("rank 3") || ContainsSubstring("rank 1"));
  }
  CHECK(seconds_since(begin) < 15);  // rank 3 noticed it while its device was blocked
}

// Rank 0 aborts while the kernel of rank 2 waits for rank 3's. That kernel does not begin before
// rank 2's device is idle, or 10 seconds have passed.
TEST_CASE("nodes of GPUs: after a failure on the other node, no kernel waits any longer",
          "[vgpu][nodes]") {
  using namespace std::chrono_literals;
  const Nodes nodes{2, 2};
  if (connected_devices() < nodes.world()) {
    WARN("not run: ranks share a device, so that a rank cannot wait for its kernels alone");
    return;
  }
  GroupOptions options = nodes.options(CudaEngine::kernel);
  options.timeout = 60s;
  std::atomic<bool> open{false}, idle{false};
  const auto seconds = run_on_nodes<double>(nodes, options, [&](ProcessGroup& g) {
    const DeviceData<float> data(g, true, std::vector<float>(30'000, 1.0F));
    g.all_reduce(data.buffer());
    Stream::current().synchronize();
    g.barrier();
    if (g.rank() == 3) block_stream(open);
    double waited = 0;
    try {
      const auto work = g.all_reduce_async(data.buffer(), data.buffer(), ReduceOp::sum);
      if (g.rank() == 0) {
        std::this_thread::sleep_for(300ms);
        g.abort();
      }
      work->host_wait();
    } catch (const Error&) {
      const auto begin = std::chrono::steady_clock::now();
      if (g.rank() == 2) {
        cuda_check(cudaDeviceSynchronize());
        idle = true;
      }
      waited = seconds_since(begin);
    }
    for (int i = 0; i < 10'000 && !idle; ++i) std::this_thread::sleep_for(1ms);
    open = true;
    return waited;
  });
  CHECK(seconds[2] > 0);
  CHECK(seconds[2] < 8);
}
