#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

#include "labs/apps/common/calibration.hpp"
#include "labs/apps/common/processor.hpp"
#include "runtime/base/error.hpp"

// The file of measured constants, and the shipped ones for those who have not measured.

namespace ringsmith::apps {

using comm::CostModel;
using comm::Rate;
using nlohmann::json;

namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;

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

// The same of the ring over TCP, through the loopback interface of two cores of an Intel Xeon: with
// two ranks, and with four.
constexpr Shipped kShippedTcp[2] = {{0,
                                     16.3,
                                     {{3 * kKiB, 10.8, 0.19},
                                      {48 * kKiB, 3.1, 0.28},
                                      {192 * kKiB, 3.4, 0.36},
                                      {3 * kMiB, 4.4, 0.87},
                                      {12 * kMiB, 4.7, 0.88},
                                      {48 * kMiB, 4.7, 1.5}}},
                                    {0,
                                     28.2,
                                     {{3 * kKiB, 5.7, 0.18},
                                      {48 * kKiB, 6.2, 0.26},
                                      {192 * kKiB, 5.5, 0.30},
                                      {3 * kMiB, 11.1, 0.77},
                                      {12 * kMiB, 11.3, 1.0},
                                      {48 * kMiB, 11.8, 2.6}}}};

CostModel model_of(const Shipped& s) {
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

std::optional<CostModel> shipped(const CalibrationKey& key) {
  const bool crowded = key.world > static_cast<int>(std::thread::hardware_concurrency());
  CostModel model = model_of(kShipped[crowded ? 1 : 0][key.own_memory ? 0 : 1]);
  if (key.links == Links::shared_memory) return model;
  if (key.links == Links::rdma) return std::nullopt;
  const CostModel tcp = model_of(kShippedTcp[crowded ? 1 : 0]);
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
  } catch (const std::exception&) {  // parse errors, missing keys, wrong types
    trouble = "; " + calibration_file() + " is unreadable, --calibrate writes it anew";
  }
  std::optional<CostModel> model = shipped(key);
  if (model) model->origin += trouble;
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
  if (model.wire)
    all[key.text()]["wire"] = {{"alpha", model.wire->alpha}, {"beta", to_json(model.wire->beta)}};
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

}  // namespace ringsmith::apps
