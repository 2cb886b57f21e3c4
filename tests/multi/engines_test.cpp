// Hidden cases for groups on devices. Both engines give the host transport's bits, and two groups
// work concurrently on two streams.
#include <cmath>
#include <random>

#include "runtime/device/stream.hpp"
#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Values of different magnitudes: almost every reordering of a sum of three changes its last bit.
template <class T>
std::vector<T> wide_values(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(n));
  std::vector<T> x(n);
  for (T& v : x) {
    if constexpr (std::is_integral_v<T>)
      v = static_cast<T>(random());
    else
      v = static_cast<T>(std::ldexp(static_cast<float>(random() % 2000) - 1000.0F,
                                    static_cast<int>(random() % 7) - 6));
  }
  return x;
}

std::shared_ptr<ProcessGroup> another_group(CudaEngine engine) {
  GroupOptions options = group().options();
  options.engine = engine;
  return init_process_group(options);
}

// Returns the number of elements in device memory that differ in any bit from the answer. avg runs
// in ordinary memory at an unaligned address, the other operations in communication memory.
template <class T>
std::size_t all_reduce_and_compare(ProcessGroup& g, const std::vector<T>& mine, ReduceOp op,
                                   const std::vector<T>& answer) {
  const bool own = op != ReduceOp::avg;
  Guarded<T> data(g, own, mine.size(), own ? 0 : 1);
  data.fill([&](std::size_t i) { return mine[i]; });
  g.all_reduce(data.buffer(), op);
  return data.wrong([&](std::size_t i) { return answer[i]; });
}

}  // namespace

TEMPLATE_TEST_CASE("stream engine, kernel engine and shared memory give the same bits",
                   "[multi][.engines]", float, f16, bf16, double, std::int32_t) {
  std::vector<std::shared_ptr<ProcessGroup>> groups = {another_group(CudaEngine::stream)};
  if (device_count() < group().size())
    WARN("kernel engine not run: processes share a device");
  else
    groups.push_back(another_group(CudaEngine::kernel));
  for (const auto algorithm : {Algorithm::ring, Algorithm::gloo_ring, Algorithm::direct}) {
    for (const auto& g : groups) g->set_algorithm(algorithm);
    for (const auto op :
         {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
      if (op == ReduceOp::avg && std::is_integral_v<TestType>) continue;
      for (const std::size_t count : {1031, 20'011}) {
        INFO(name_of(algorithm) << " " << name_of(op) << " of " << count);
        const auto mine = wide_values<TestType>(group().rank(), count);
        auto answer = mine;
        groups.front()->all_reduce(std::span(answer), op);  // in host memory
        for (const auto& g : groups) {
          INFO("engine " << name_of(g->options().engine));
          CHECK(all_reduce_and_compare(*g, mine, op, answer) == 0);
        }
      }
    }
  }
}

TEST_CASE("two groups work at once, each on a stream of its own", "[multi][.device]") {
  constexpr std::size_t kCalls = 24;
  ProcessGroup& first = group();
  const auto second = another_group(first.options().engine);
  const DeviceGuard guard(first.device());
  const Stream side = Stream::create(first.device());
  std::vector<Guarded<float>> ours, theirs;
  for (unsigned call = 0; call < kCalls; ++call) {
    const std::size_t count = call % 3 == 0 ? 9 : 100 + std::size_t{3000} * call;
    for (const bool main : {true, false}) {
      auto& mine =
          (main ? ours : theirs).emplace_back(main ? first : *second, call % 2 == 0, count);
      mine.fill([&](std::size_t i) {
        return contribution<float>(ReduceOp::sum, first.size(), first.rank(), i, 2 * call + main);
      });
    }
  }
  std::vector<WorkPtr> works;
  for (unsigned call = 0; call < kCalls; ++call) {
    const auto run = [&](bool main) {
      const StreamGuard current(main ? Stream::current(first.device()) : side);
      const Buffer data = (main ? ours : theirs)[call].buffer();
      works.push_back((main ? first : *second).all_reduce_async(data, data, ReduceOp::sum));
    };
    // Odd ranks call the groups in the opposite order.
    run(first.rank() % 2 == 0);
    run(first.rank() % 2 != 0);
  }
  for (const WorkPtr& work : works) work->wait();
  for (unsigned call = 0; call < kCalls; ++call)
    for (const bool main : {true, false}) {
      INFO("call " << call << (main ? ", first group" : ", second group"));
      CHECK((main ? ours : theirs)[call].wrong([&](std::size_t i) {
        return expected<float>(ReduceOp::sum, first.size(), i, 2 * call + main);
      }) == 0);
    }
}
