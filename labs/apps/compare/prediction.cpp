#include "labs/apps/compare/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "labs/apps/common/files.hpp"
#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/parallel/bucket.hpp"

namespace ringsmith::apps {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Errors about missing or invalid values name the file.
class Description {
 public:
  explicit Description(const std::string& name) : file_(find(name)) {
    if (const std::string kind = odd_kind(file_); !kind.empty())
      throw UsageError("cannot read '" + file_ + "': it is " + kind + "; give an existing file");
    try {
      std::ifstream in(file_);
      require(in.good() && !fs::is_directory(file_),
              "cannot read '" + file_ + "': it must be an existing file");
      data_ = json::parse(in);
    } catch (const json::exception&) {
      throw UsageError(file_ + " is not JSON");
    }
    require(data_.is_object(), file_ + ": expected a JSON object");
  }

  [[nodiscard]] std::string text(const std::string& key) const {
    return get<std::string>(data_, key);
  }
  [[nodiscard]] double positive(const std::string& key) const { return positive(data_, key, key); }
  [[nodiscard]] int count(const std::string& key) const {
    const double value = positive(key);
    require(is_count(value, 1e6),
            file_ + ": \"" + key + "\" must be a whole number from 1 to a million");
    return static_cast<int>(value);
  }
  [[nodiscard]] comm::Link link(const std::string& key) const {
    const json part = get<json>(data_, key);
    require(part.is_object(),
            file_ + ": \"" + key + "\" must hold latency_us and gigabytes_per_second");
    return {positive(part, "latency_us", key) * 1e-6,
            1e-9 / positive(part, "gigabytes_per_second", key)};
  }
  [[nodiscard]] std::vector<Elements> tensors() const {
    std::vector<Elements> all;
    for (const json& group : get<json>(data_, "tensors")) {
      const auto elements = get<std::vector<double>>(group, "elements");
      const auto repeat = get<double>(group, "repeat");
      require(is_count(repeat, 1e6) && repeat * static_cast<double>(elements.size()) <= 1e6,
              file_ + ": \"repeat\" must be a whole number that gives at most a million tensors");
      for (int i = 0; i < static_cast<int>(repeat); ++i)
        for (const double n : elements) {
          require(is_count(n, 1e12), file_ + ": \"elements\" must be whole numbers from 1 to 1e12");
          all.emplace_back(static_cast<std::size_t>(n));
        }
    }
    require(!all.empty(), file_ + ": \"tensors\" lists no parameters");
    return all;
  }

 private:
  static bool is_count(double value, double most) {
    return value >= 1 && value <= most && value == std::floor(value);
  }
  static std::string find(const std::string& name) {
    if (name.find('/') != std::string::npos || name.find('.') != std::string::npos) return name;
    const fs::path folder = fs::path(find_source_root()) / "labs" / "scaling";
    const fs::path file = folder / (name + ".json");
    if (fs::exists(file)) return file.string();
    std::vector<std::string> known;
    for (const auto& entry : fs::directory_iterator(folder))
      known.push_back(entry.path().stem().string());
    std::ranges::sort(known);
    throw UsageError(fmt::format("no '{}' in {}: give a file, or one of {}", name, folder.string(),
                                 fmt::join(known, ", ")));
  }

  template <class T>
  [[nodiscard]] T get(const json& from, const std::string& key) const {
    try {
      return from.at(key).get<T>();
    } catch (const json::exception&) {
      throw UsageError(file_ + ": \"" + key + "\" is missing or has the wrong type");
    }
  }
  [[nodiscard]] double positive(const json& from, const std::string& key,
                                const std::string& within) const {
    const auto value = get<double>(from, key);
    require(value > 0 && value < 1e15,
            file_ + ": \"" + key + "\" (in \"" + within + "\") must be above zero");
    return value;
  }

  std::string file_;
  json data_;
};

}  // namespace

comm::Topology load_topology(const std::string& name_or_file) {
  const Description file(name_or_file);
  comm::Topology t;
  t.name = file.text("name");
  t.source = file.text("source");
  t.nodes = file.count("nodes");
  t.gpus_per_node = file.count("gpus_per_node");
  t.nics_per_node = file.count("nics_per_node");
  t.gpu = file.link("gpu_link");
  t.nic = file.link("nic_link");
  t.gamma = 1e-9 / file.positive("reduce_gigabytes_per_second");
  t.overhead = file.positive("overhead_us") * 1e-6;
  t.flops = file.positive("gpu_teraflops") * 1e12;
  return t;
}

TrainedModel load_model(const std::string& name_or_file) {
  const Description file(name_or_file);
  TrainedModel model;
  model.name = file.text("name");
  model.source = file.text("source");
  model.tensors = file.tensors();
  model.gradient = Bytes(static_cast<std::size_t>(file.count("gradient_bytes")));
  model.flops = file.positive("gigaflops_per_sample") * 1e9 * file.positive("samples");
  return model;
}

std::vector<double> buckets_of(const TrainedModel& model, Bytes first_cap, Bytes cap) {
  std::vector<BucketItem> items;
  for (const Elements n : model.tensors)
    items.push_back({Elements(n.value * model.gradient.value), DType::u8});
  std::vector<int> ready(items.size());
  std::iota(ready.rbegin(), ready.rend(), 0);  // the last layer's gradients are ready first
  std::vector<double> bytes;
  for (const BucketLayout& bucket : rebuilt_plan(items, {first_cap, cap}, ready).buckets)
    bytes.push_back(static_cast<double>(bucket.size().value));
  return bytes;
}

PredictedStep predict_step(double compute, const std::vector<double>& buckets,
                           const std::function<double(double bytes)>& reduce) {
  const double forward = compute / 3, all = std::accumulate(buckets.begin(), buckets.end(), 0.0);
  PredictedStep step{compute, 0, 0};
  double done = 0, so_far = 0;
  for (const double bytes : buckets) {
    so_far += bytes;
    const double ready = forward + (compute - forward) * so_far / all;
    const double seconds = reduce(bytes);
    step.reductions += seconds;
    done = std::max(done, ready) + seconds;
  }
  step.exposed = std::max(0.0, done - compute);
  return step;
}

}  // namespace ringsmith::apps
