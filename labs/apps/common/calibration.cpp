#include "labs/apps/common/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::apps {

using comm::CostModel;
using comm::Rate;
using nlohmann::json;

namespace {

// Sizes between the powers of two; bytes.
constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;
constexpr std::size_t kSizes[] = {768,        3 * kKiB, 12 * kKiB, 48 * kKiB, 192 * kKiB,
                                  768 * kKiB, 3 * kMiB, 12 * kMiB, 48 * kMiB, 192 * kMiB};
constexpr std::size_t kTinySize = 64;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
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

CostModel shipped(const CalibrationKey& key);

}  // namespace

std::string CalibrationKey::text() const {
  return fmt::format("{} ranks, {} memory, {}, {} cores, {}", world, own_memory ? "own" : "user",
                     name_of(algorithm), std::thread::hardware_concurrency(), cpu_model());
}

std::string calibration_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache != nullptr && *cache != '\0' ? std::string(cache)
                           : home != nullptr                  ? std::string(home) + "/.cache"
                                                              : ".cache";
  return base + "/ringsmith/calibration.json";
}

CostModel load_cost_model(const CalibrationKey& key) {
  std::string trouble;
  try {
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
        return model;
      }
    }
  } catch (const std::exception&) {  // parse errors, missing keys, wrong types
    trouble = "; " + calibration_file() + " is unreadable, --calibrate writes it anew";
  }
  CostModel model = shipped(key);
  model.origin += trouble;
  return model;
}

void store_cost_model(const CalibrationKey& key, const CostModel& model) {
  namespace fs = std::filesystem;
  const fs::path path = calibration_file();
  json all = json::object();
  try {
    if (std::ifstream file(path); file) all = json::parse(file);
  } catch (const json::exception&) {
    all = json::object();  // unreadable: start anew
  }
  const auto now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M", std::localtime(&now));
  all[key.text()] = {{"date", date},
                     {"overhead", model.overhead},
                     {"alpha", model.alpha},
                     {"beta", to_json(model.beta)},
                     {"gamma", to_json(model.gamma)}};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path temporary = path.string() + fmt::format(".{}", ::getpid());
  std::ofstream file(temporary);
  file << all.dump(1) << "\n";
  file.close();
  if (file.good()) fs::rename(temporary, path, error);
  require(file.good() && !error, "cannot write the calibration to '" + path.string() +
                                     "': set XDG_CACHE_HOME to a folder that is writable");
}

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
    for (std::size_t i = 0; i < sizes && world > 1; ++i)
      times[i] = std::min(times[i], time_all_reduce(kSizes[i]));
  }
  if (world == 1) {
    model.overhead = tiny;
    model.origin = "calibrated now: " + key.text();
    return model;
  }
  const int steps = 2 * (world - 1);
  model.alpha = std::min(barrier, tiny) / steps;
  model.overhead = std::max(0.0, tiny - steps * model.alpha);

  std::vector<Rate::Point> beta, gamma;
  for (std::size_t i = 0; i < sizes; ++i) {
    const std::size_t size = kSizes[i];
    const auto bytes = static_cast<double>(size);
    const double seconds = times[i];
    const double reduce = seconds_a_byte_reduced(std::min<std::size_t>(size, 32 << 20));
    // seconds = overhead + steps alpha + share (2 beta + gamma), share = bytes (world - 1) / world
    const double share = bytes * (world - 1) / world;
    const double rest = std::max(0.0, seconds - model.overhead - steps * model.alpha);
    const double added = std::min(reduce, 0.5 * rest / share);
    gamma.push_back({bytes, added});
    beta.push_back({bytes, (rest / share - added) / 2});
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

double predict(const CostModel& model, comm::Collective collective, comm::Algorithm algorithm,
               int world, double bytes, int root) {
  using comm::Algorithm;
  // The shape that the constants were fitted to; automatic is priced as the ring.
  std::string name = comm::algorithms_of(collective).front();
  if (collective == comm::Collective::all_reduce &&
      (algorithm == Algorithm::tree || algorithm == Algorithm::direct))
    name = name_of(algorithm);
  const auto part = static_cast<std::size_t>(bytes / world);
  const auto schedule =
      comm::make_schedule(collective, name, world, part * static_cast<std::size_t>(world), 1, root);
  return comm::simulate(schedule, 1, model.network(bytes)).seconds;
}

namespace {

struct Shipped {
  double overhead, alpha;  // microseconds
  struct {
    double size, beta, gamma;  // bytes; nanoseconds for 10 bytes, which is 1e-10 s/byte
  } rates[6];
};

// Rounded results of --calibrate on a virtual machine with two cores of an AMD EPYC: with two ranks
// for as many ranks as cores, with four for more.
constexpr Shipped kShipped[2][2] = {{{0.17,
                                      0.046,  // own memory
                                      {{12 * kKiB, 0.02, 0.03},
                                       {192 * kKiB, 0.04, 0.07},
                                       {3 * kMiB, 0.05, 0.10},
                                       {12 * kMiB, 0.07, 0.14},
                                       {48 * kMiB, 1.0, 0.6},
                                       {192 * kMiB, 1.3, 0.6}}},
                                     {0.15,
                                      0.047,  // user memory
                                      {{3 * kKiB, 0.88, 0.13},
                                       {12 * kKiB, 0.52, 0.08},
                                       {192 * kKiB, 0.37, 0.11},
                                       {3 * kMiB, 0.27, 0.23},
                                       {12 * kMiB, 0.24, 0.45},
                                       {48 * kMiB, 2.8, 0.59}}}},
                                    {{1.30,
                                      0.38,
                                      {{3 * kKiB, 1.5, 0.13},
                                       {48 * kKiB, 0.47, 0.09},
                                       {192 * kKiB, 0.14, 0.12},
                                       {3 * kMiB, 0.08, 0.17},
                                       {12 * kMiB, 1.5, 0.47},
                                       {48 * kMiB, 2.5, 0.54}}},
                                     {1.30,
                                      0.41,
                                      {{3 * kKiB, 1.0, 0.13},
                                       {192 * kKiB, 1.0, 0.09},
                                       {768 * kKiB, 1.3, 0.16},
                                       {3 * kMiB, 1.6, 0.17},
                                       {12 * kMiB, 3.8, 0.53},
                                       {48 * kMiB, 4.0, 0.58}}}}};

CostModel shipped(const CalibrationKey& key) {
  const bool crowded = key.world > static_cast<int>(std::thread::hardware_concurrency());
  const Shipped& s = kShipped[crowded ? 1 : 0][key.own_memory ? 0 : 1];
  CostModel model;
  model.origin = "shipped constants of a 2-core machine: --calibrate measures this one";
  model.overhead = s.overhead * 1e-6;
  model.alpha = s.alpha * 1e-6;
  std::vector<Rate::Point> beta, gamma;
  for (const auto& rate : s.rates) {
    beta.push_back({rate.size, rate.beta * 1e-10});
    gamma.push_back({rate.size, rate.gamma * 1e-10});
  }
  model.beta = Rate(std::move(beta));
  model.gamma = Rate(std::move(gamma));
  return model;
}

}  // namespace

}  // namespace ringsmith::apps
