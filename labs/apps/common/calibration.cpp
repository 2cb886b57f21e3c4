#include "labs/apps/common/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>

#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::apps {

using comm::CostModel;
using comm::Rate;

namespace {

// Sizes between the powers of two; bytes.
constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;
constexpr std::size_t kSizes[] = {768,        3 * kKiB, 12 * kKiB, 48 * kKiB, 192 * kKiB,
                                  768 * kKiB, 3 * kMiB, 12 * kMiB, 48 * kMiB, 192 * kMiB};
constexpr std::size_t kTinySize = 64;
constexpr double kLongEnough = 0.25;  // seconds of one all-reduce; no larger size is tried

// The schedule that the constants are fitted to: automatic counts as the ring.
std::string priced_algorithm(comm::Algorithm algorithm) {
  return algorithm == comm::Algorithm::automatic ? "ring" : std::string(name_of(algorithm));
}

double available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::strtod(line.c_str() + 13, nullptr) * 1024;
  return 0;
}

// Adding n floats to n others, seconds a byte of n; the working set counts both, as in a collective
// on n elements between two ranks.
double seconds_a_byte_reduced(std::size_t bytes) {
  std::vector<float> a(bytes / sizeof(float), 1.0f), b(a.size(), 2.0f);
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  int rounds = 0;
  for (const auto begin = Clock::now();
       rounds < 3 || Clock::now() - begin < std::chrono::milliseconds(20); ++rounds) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    // Keeps the loop: the compiler must assume that somebody looks.
    asm volatile("" : : "r"(a.data()) : "memory");
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best / static_cast<double>(bytes);
}

}  // namespace

CostModel calibrate(const CalibrationKey& key, comm::ProcessGroup& group,
                    const std::function<double(std::size_t)>& time_all_reduce,
                    const std::function<void(const std::string&)>& progress) {
  CostModel model;
  const int world = group.size();
  // Memory is rank 0's to judge: the ranks share it, and must measure the same sizes.
  double memory = available_memory();
  group.broadcast(std::span<double>(&memory, 1), 0);
  // Several passes, the fastest counts: a moment in which others used the machine spoils one.
  constexpr int kPasses = 3, kBarriers = 200;
  double tiny = 1e9, barrier = 1e9;
  std::vector<double> times(std::size(kSizes), 1e9);
  std::size_t sizes = 0;
  while (sizes < times.size() && static_cast<double>(kSizes[sizes]) * 2 * world < 0.5 * memory)
    ++sizes;
  for (int pass = 0; pass < kPasses; ++pass) {
    progress(fmt::format("pass {} of {}", pass + 1, kPasses));
    tiny = std::min(tiny, time_all_reduce(kTinySize));
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBarriers; ++i) group.barrier();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    barrier = std::min(barrier, took.count() / kBarriers);
    for (std::size_t i = 0; i < sizes && world > 1; ++i) {
      times[i] = std::min(times[i], time_all_reduce(kSizes[i]));
      double seconds = times[i];  // on a slow wire: rank 0 says when it is enough
      group.broadcast(std::span<double>(&seconds, 1), 0);
      if (seconds > kLongEnough) sizes = i + 1;
    }
  }
  if (world == 1) {
    model.overhead = tiny;
    model.origin = "calibrated now: " + key.text();
    return model;
  }
  const auto shape = [&](std::size_t size) {
    return comm::shape_of(comm::make_schedule(comm::Collective::all_reduce,
                                              priced_algorithm(key.algorithm), world, size, 1));
  };
  const double steps = shape(kTinySize).steps;
  // Only an algorithm that was asked for runs all its steps for a tiny message.
  const bool one_hand_off = key.algorithm == comm::Algorithm::automatic;
  model.alpha = (one_hand_off ? std::min(barrier, tiny) : tiny) / steps;
  model.overhead = std::max(0.0, tiny - steps * model.alpha);

  std::vector<Rate::Point> beta, gamma;
  for (std::size_t i = 0; i < sizes; ++i) {
    const std::size_t size = kSizes[i];
    const auto bytes = static_cast<double>(size);
    const double seconds = times[i];
    const double reduce = seconds_a_byte_reduced(std::min<std::size_t>(size, 32 << 20));
    // seconds = overhead + steps alpha + moved beta + reduced gamma
    const comm::CostShape cost = shape(size);
    const double rest = std::max(0.0, seconds - model.overhead - cost.steps * model.alpha);
    const double added = std::min(reduce, 0.5 * rest / cost.reduced);
    gamma.push_back({bytes, added});
    beta.push_back({bytes, (rest - cost.reduced * added) / cost.moved});
  }
  // The ranks' own measurements of gamma differ a little: rank 0's model is everybody's.
  std::vector<double> numbers{model.overhead, model.alpha};
  for (std::size_t i = 0; i < beta.size(); ++i) {
    numbers.push_back(beta[i].seconds_per_byte);
    numbers.push_back(gamma[i].seconds_per_byte);
  }
  group.broadcast(std::span<double>(numbers), 0);
  model.overhead = numbers[0];
  model.alpha = numbers[1];
  for (std::size_t i = 0; i < beta.size(); ++i) {
    beta[i].seconds_per_byte = numbers[2 + 2 * i];
    gamma[i].seconds_per_byte = numbers[3 + 2 * i];
  }
  model.beta = Rate(std::move(beta));
  model.gamma = Rate(std::move(gamma));
  model.origin = "calibrated now: " + key.text();
  return model;
}

Links links_of(const comm::ProcessGroup& group) {
  if (group.describe_transport().empty()) return Links::shared_memory;
  if (group.options().transport == comm::Transport::rdma) return Links::rdma;
  const auto nodes = comm::ranks_of_nodes(group.node_of(), group.size());
  const bool pairs =
      std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.size() > 1; });
  const bool within = group.options().transport == comm::Transport::automatic && pairs;
  return within ? Links::nodes : Links::tcp;
}

CalibrationKey key_for(const comm::ProcessGroup& group, bool own_memory,
                       comm::Algorithm algorithm) {
  const auto nodes = comm::ranks_of_nodes(group.node_of(), group.size());
  return {group.size(), own_memory, algorithm, links_of(group), static_cast<int>(nodes.size())};
}

double predict(const CostModel& model, comm::Collective collective, comm::Algorithm algorithm,
               int world, double bytes, int root, const std::vector<int>& node_of) {
  const std::string name = collective == comm::Collective::all_reduce
                               ? priced_algorithm(algorithm)
                               : comm::algorithms_of(collective).front();
  const auto part = static_cast<std::size_t>(bytes / world);
  return comm::predicted_time(
      model, comm::make_schedule(collective, name, world, part * static_cast<std::size_t>(world), 1,
                                 root, node_of));
}

std::vector<comm::SizedChoice> choose_fastest(comm::ProcessGroup& group, const CostModel& model) {
  // Rank 0's model is everybody's: the ranks must make the same calls.
  const auto& names = comm::choosable_algorithms();
  std::vector<comm::SizedChoice> choices =
      comm::fastest_by_size(model, group.size(), group.node_of());
  constexpr std::size_t kMost = 32;
  std::vector<double> numbers(2 * kMost, -1);
  for (std::size_t i = 0; i < std::min(choices.size(), kMost); ++i) {
    const auto found = std::find(names.begin(), names.end(), choices[i].algorithm);
    numbers[2 * i] = choices[i].up_to;
    numbers[2 * i + 1] = static_cast<double>(found - names.begin());
  }
  group.broadcast(std::span<double>(numbers), 0);
  choices.clear();
  std::vector<std::pair<Bytes, comm::Algorithm>> by_size;
  for (std::size_t i = 0; i < kMost && numbers[2 * i] > 0; ++i) {
    choices.push_back({numbers[2 * i], names.at(static_cast<std::size_t>(numbers[2 * i + 1])), 0});
    by_size.emplace_back(Bytes(static_cast<std::size_t>(choices.back().up_to)),
                         comm::parse_algorithm(choices.back().algorithm));
  }
  group.set_algorithms(by_size);
  return choices;
}

void choose_fastest(comm::ProcessGroup& group) {
  require(group.device().is_cpu(),
          "--algorithm fastest is for the CPU: the cost model knows no GPU's links");
  const auto model = load_cost_model(key_for(group, true, comm::Algorithm::ring));
  require(model.has_value(),
          "--algorithm fastest needs constants for these links: run "
          "all_reduce_perf --algorithm fastest --calibrate on them once");
  (void)choose_fastest(group, *model);
}

}  // namespace ringsmith::apps
