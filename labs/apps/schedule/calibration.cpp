#include "labs/apps/schedule/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/chrono.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "labs/apps/common/processor.hpp"
#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::apps {

using comm::CostModel;
using comm::Rate;
using nlohmann::json;

namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;
// Sizes between the powers of two, in bytes.
constexpr std::size_t kSizes[] = {768,        3 * kKiB, 12 * kKiB, 48 * kKiB, 192 * kKiB,
                                  768 * kKiB, 3 * kMiB, 12 * kMiB, 48 * kMiB, 192 * kMiB};
constexpr std::size_t kTinySize = 64;
constexpr double kLongEnough = 0.25;  // seconds; after a slower all-reduce larger sizes are skipped

// The algorithm to which the constants are fitted.
comm::Algorithm priced_algorithm(comm::Algorithm algorithm) {
  return algorithm == comm::Algorithm::automatic ? comm::Algorithm::ring : algorithm;
}

double available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::strtod(line.c_str() + 13, nullptr) * 1024;
  return 0;
}

// Seconds per byte of adding one array of floats to another, with the working set of an all-reduce
// of `bytes` bytes between two ranks.
double seconds_a_byte_reduced(std::size_t bytes) {
  std::vector<float> a(bytes / sizeof(float), 1.0f), b(a.size(), 2.0f);
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  int rounds = 0;
  for (const auto begin = Clock::now();
       rounds < 3 || Clock::now() - begin < std::chrono::milliseconds(20); ++rounds) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    // Prevents the compiler from removing the loop.
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
  model.origin = "calibrated now: " + key.text();
  const int world = group.size();
  // All ranks must measure the same sizes, so rank 0's available memory limits them.
  double memory = available_memory();
  group.broadcast(std::span<double>(&memory, 1), 0);
  // Other load on the machine may slow down a pass, so the shortest time of several passes counts.
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
      double seconds = times[i];  // rank 0 decides when to stop on a slow link
      group.broadcast(std::span<double>(&seconds, 1), 0);
      if (seconds > kLongEnough) sizes = i + 1;
    }
  }
  if (world == 1) {
    model.overhead = tiny;
    return model;
  }
  const auto shape = [&](std::size_t size) {
    return comm::shape_of(comm::make_schedule(comm::Collective::all_reduce,
                                              priced_algorithm(key.algorithm), world, size, 1));
  };
  const double steps = shape(kTinySize).steps;
  // An automatic all-reduce sends a tiny message in one hand-off, not in the ring's `steps`. So
  // alpha is fitted to the time of this hand-off, or of a barrier if that is shorter.
  const bool one_hand_off = key.algorithm == comm::Algorithm::automatic;
  model.alpha = (one_hand_off ? std::min(barrier, tiny) : tiny) / steps;
  model.overhead = std::max(0.0, tiny - steps * model.alpha);

  std::vector<double> numbers{model.overhead, model.alpha};  // then beta and gamma of each size
  for (std::size_t i = 0; i < sizes; ++i) {
    const std::size_t size = kSizes[i];
    const double seconds = times[i];
    const double reduce = seconds_a_byte_reduced(std::min<std::size_t>(size, 32 << 20));
    // seconds = overhead + steps alpha + moved beta + reduced gamma
    const comm::CostShape cost = shape(size);
    const double rest = std::max(0.0, seconds - model.overhead - cost.steps * model.alpha);
    const double added = std::min(reduce, 0.5 * rest / cost.reduced);
    numbers.push_back((rest - cost.reduced * added) / cost.moved);
    numbers.push_back(added);
  }
  // All ranks use rank 0's numbers, because the measured gamma differs slightly between ranks.
  group.broadcast(std::span<double>(numbers), 0);
  model.overhead = numbers[0];
  model.alpha = numbers[1];
  std::vector<Rate::Point> beta, gamma;
  for (std::size_t i = 0; i < sizes; ++i) {
    beta.push_back({static_cast<double>(kSizes[i]), numbers[2 + 2 * i]});
    gamma.push_back({static_cast<double>(kSizes[i]), numbers[3 + 2 * i]});
  }
  model.beta = Rate(std::move(beta));
  model.gamma = Rate(std::move(gamma));
  return model;
}

CalibrationKey key_for(const comm::ProcessGroup& group, bool own_memory,
                       comm::Algorithm algorithm) {
  const auto nodes = comm::ranks_of_nodes(group.node_of(), group.size());
  const bool pairs = std::ranges::any_of(nodes, [](const auto& node) { return node.size() > 1; });
  const comm::Transport transport = group.options().transport;
  const Links links = group.describe_transport().empty()                 ? Links::shared_memory
                      : transport == comm::Transport::rdma               ? Links::rdma
                      : transport == comm::Transport::automatic && pairs ? Links::nodes
                                                                         : Links::tcp;
  return {group.size(), own_memory, algorithm, links, static_cast<int>(nodes.size())};
}

double predict(const CostModel& model, comm::Collective collective, comm::Algorithm algorithm,
               int world, double bytes, int root, const std::vector<int>& node_of) {
  const comm::Algorithm priced = collective == comm::Collective::all_reduce
                                     ? priced_algorithm(algorithm)
                                     : comm::algorithms_of(collective).front();
  const auto part = static_cast<std::size_t>(bytes / world);
  return comm::predicted_time(
      model, comm::make_schedule(collective, priced, world, part * static_cast<std::size_t>(world),
                                 1, root, node_of));
}

std::vector<comm::SizedChoice> choose_fastest(comm::ProcessGroup& group, const CostModel& model) {
  // The ranks must make the same calls, so all of them use rank 0's choices.
  std::vector<comm::SizedChoice> choices =
      comm::fastest_by_size(model, group.size(), group.node_of());
  constexpr std::size_t kMost = 32;
  std::vector<double> numbers(2 * kMost, -1);
  for (std::size_t i = 0; i < std::min(choices.size(), kMost); ++i) {
    numbers[2 * i] = choices[i].up_to;
    numbers[2 * i + 1] = static_cast<double>(choices[i].algorithm);
  }
  group.broadcast(std::span<double>(numbers), 0);
  choices.clear();
  std::vector<std::pair<Bytes, comm::Algorithm>> by_size;
  for (std::size_t i = 0; i < kMost && numbers[2 * i] > 0; ++i) {
    choices.push_back(
        {numbers[2 * i], static_cast<comm::Algorithm>(static_cast<int>(numbers[2 * i + 1])), 0});
    by_size.emplace_back(Bytes(static_cast<std::size_t>(choices.back().up_to)),
                         choices.back().algorithm);
  }
  group.set_algorithms(by_size);
  return choices;
}

void choose_fastest(comm::ProcessGroup& group) {
  require(group.device().is_cpu(),
          "--algorithm fastest is for the CPU: the cost model does not cover GPU links");
  const auto model = load_cost_model(key_for(group, true, comm::Algorithm::ring));
  require(model.has_value(),
          "--algorithm fastest needs constants for these links: run "
          "all_reduce_perf --algorithm fastest --calibrate on them once");
  (void)choose_fastest(group, *model);
}

// ---- the file of measured constants, and the built-in constants ----

namespace {

json to_json(const Rate& rate) {
  json points = json::array();
  for (const auto& p : rate.points()) points.push_back({p.working_set, p.seconds_per_byte});
  return points;
}

Rate rate_from(const json& points) {
  std::vector<Rate::Point> out;
  for (const auto& p : points) out.push_back({p.at(0), p.at(1)});
  return Rate(std::move(out));
}

struct BuiltIn {
  double per_message[2];             // overhead and alpha, in microseconds
  double kib[6], beta[6], gamma[6];  // KiB; nanoseconds per 10 bytes, i.e. 1e-10 s/byte
};

// Rounded results of --calibrate on a virtual machine with two cores of an AMD EPYC. kOwn and kUser
// were measured with two ranks; the "crowded" ones, for jobs with more ranks than cores, with four.
constexpr BuiltIn kOwn{{0.17, 0.046},
                       {12, 192, 3 * 1024, 12 * 1024, 48 * 1024, 192 * 1024},
                       {0.02, 0.04, 0.05, 0.07, 1.0, 1.3},
                       {0.03, 0.07, 0.10, 0.14, 0.6, 0.6}};
constexpr BuiltIn kUser{{0.15, 0.047},
                        {3, 12, 192, 3 * 1024, 12 * 1024, 48 * 1024},
                        {0.88, 0.52, 0.37, 0.27, 0.24, 2.8},
                        {0.13, 0.08, 0.11, 0.23, 0.45, 0.59}};
constexpr BuiltIn kOwnCrowded{{1.30, 0.38},
                              {3, 48, 192, 3 * 1024, 12 * 1024, 48 * 1024},
                              {1.5, 0.47, 0.14, 0.08, 1.5, 2.5},
                              {0.13, 0.09, 0.12, 0.17, 0.47, 0.54}};
constexpr BuiltIn kUserCrowded{{1.30, 0.41},
                               {3, 192, 768, 3 * 1024, 12 * 1024, 48 * 1024},
                               {1.0, 1.0, 1.3, 1.6, 3.8, 4.0},
                               {0.13, 0.09, 0.16, 0.17, 0.53, 0.58}};

// The corresponding results for the ring over TCP, on the loopback interface of two cores of an
// Intel Xeon.
constexpr BuiltIn kTcp{{0, 16.3},
                       {3, 48, 192, 3 * 1024, 12 * 1024, 48 * 1024},
                       {10.8, 3.1, 3.4, 4.4, 4.7, 4.7},
                       {0.19, 0.28, 0.36, 0.87, 0.88, 1.5}};
constexpr BuiltIn kTcpCrowded{{0, 28.2},
                              {3, 48, 192, 3 * 1024, 12 * 1024, 48 * 1024},
                              {5.7, 6.2, 5.5, 11.1, 11.3, 11.8},
                              {0.18, 0.26, 0.30, 0.77, 1.0, 2.6}};

CostModel model_of(const BuiltIn& s) {
  CostModel model;
  model.origin = "built-in constants of a 2-core machine: --calibrate measures this one";
  model.overhead = s.per_message[0] * 1e-6;
  model.alpha = s.per_message[1] * 1e-6;
  std::vector<Rate::Point> beta, gamma;
  for (std::size_t i = 0; i < std::size(s.kib); ++i) {
    beta.push_back({s.kib[i] * 1024, s.beta[i] * 1e-10});
    gamma.push_back({s.kib[i] * 1024, s.gamma[i] * 1e-10});
  }
  model.beta = Rate(std::move(beta));
  model.gamma = Rate(std::move(gamma));
  return model;
}

std::optional<CostModel> built_in(const CalibrationKey& key) {
  const bool crowded = key.world > static_cast<int>(std::thread::hardware_concurrency());
  CostModel model =
      model_of(key.own_memory ? (crowded ? kOwnCrowded : kOwn) : (crowded ? kUserCrowded : kUser));
  if (key.links == Links::shared_memory) return model;
  if (key.links == Links::rdma) return std::nullopt;
  const CostModel tcp = model_of(crowded ? kTcpCrowded : kTcp);
  if (key.links == Links::tcp) return tcp;
  model.wire = CostModel::Wire{tcp.alpha, tcp.beta};
  return model;
}

}  // namespace

std::string CalibrationKey::text() const {
  const std::string over = links == Links::shared_memory ? ""
                           : links == Links::tcp         ? ", tcp"
                           : links == Links::rdma        ? ", rdma"
                                                  : fmt::format(", {} nodes over tcp", nodes);
  return fmt::format("{} ranks{}, {} memory, {}, {} cores, {}", world, over,
                     own_memory ? "own" : "user", name_of(algorithm),
                     std::thread::hardware_concurrency(), processor_name(processor_text()));
}

std::string calibration_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache != nullptr && *cache != '\0' ? std::string(cache)
                           : home != nullptr                  ? std::string(home) + "/.cache"
                                                              : ".cache";
  return base + "/ringsmith/calibration.json";
}

std::optional<CostModel> load_cost_model(const CalibrationKey& key) {
  std::string trouble;
  try {
    if (const std::string kind = odd_kind(calibration_file()); !kind.empty()) throw Error(kind);
    std::ifstream file(calibration_file());
    if (file) {
      const json all = json::parse(file);
      if (const auto found = all.find(key.text()); found != all.end()) {
        CostModel model;
        model.origin = "calibrated on " + found->at("date").get<std::string>();
        model.overhead = found->at("overhead");
        model.alpha = found->at("alpha");
        model.beta = rate_from(found->at("beta"));
        model.gamma = rate_from(found->at("gamma"));
        if (const auto wire = found->find("wire"); wire != found->end())
          model.wire = CostModel::Wire{wire->at("alpha"), rate_from(wire->at("beta"))};
        return model;
      }
    }
  } catch (const std::exception&) {  // not a file, parse errors, missing keys, wrong types
    trouble = "; " + calibration_file() + " is unreadable; --calibrate rewrites it";
  }
  std::optional<CostModel> model = built_in(key);
  if (model) model->origin += trouble;
  return model;
}

void store_cost_model(const CalibrationKey& key, const CostModel& model) {
  const std::string path = calibration_file();
  try_to_write(path);  // before reading, because this call rejects a path that is not a file,
                       // which cannot be read either
  json all = json::object();
  try {
    if (std::ifstream file(path); file) all = json::parse(file);
  } catch (const json::exception&) {
    all = json::object();  // start with an empty file
  }
  const auto date = fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::time(nullptr)));
  all[key.text()] = {{"date", date},
                     {"overhead", model.overhead},
                     {"alpha", model.alpha},
                     {"beta", to_json(model.beta)},
                     {"gamma", to_json(model.gamma)}};
  if (model.wire)
    all[key.text()]["wire"] = {{"alpha", model.wire->alpha}, {"beta", to_json(model.wire->beta)}};
  write_atomically(path, all.dump(1) + "\n");
}

void require_calibration_writable() {
  const std::filesystem::path path = calibration_file();
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  try {
    try_to_write(path);
  } catch (const Error& e) {
    throw UsageError(std::string("--calibrate ") + e.what() +
                     "; set XDG_CACHE_HOME to a writable folder");
  }
}

}  // namespace ringsmith::apps
