#include "labs/apps/common/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <thread>

#include "labs/apps/common/metered_group.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/comm/bootstrap/threads.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/data_parallel.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/tensor/factory.hpp"

namespace ringsmith::apps {

namespace {

using Values = std::vector<std::vector<float>>;

std::unique_ptr<MLP> make_model(const ComparisonOptions& o) {
  manual_seed(o.seed);
  return std::make_unique<MLP>(std::vector<std::int64_t>{o.inputs, o.hidden, o.hidden, o.classes});
}

struct Batch {
  Tensor x, y;
  [[nodiscard]] Batch rows(std::int64_t from, std::int64_t to, Device device) const {
    return {x.slice(0, from, to).contiguous().to(device),
            y.slice(0, from, to).contiguous().to(device)};
  }
};

std::vector<Batch> make_batches(int devices, const ComparisonOptions& o) {
  Generator random(o.seed + 1);
  std::vector<Batch> out;
  for (int step = 0; step < kComparisonWarmup + o.steps; ++step) {
    std::vector<std::int64_t> classes(static_cast<std::size_t>(devices * o.rows));
    for (std::int64_t& c : classes) c = randint(0, o.classes, random);
    out.push_back({randn({devices * o.rows, o.inputs}, random), from_vector(classes)});
  }
  return out;
}

// One step of any of the three; everything queued by it is done when it returns.
template <class Forward>
void step(const Forward& forward, SGD& optimizer, const Batch& batch,
          const std::vector<Device>& devices) {
  optimizer.zero_grad();
  cross_entropy(forward(batch.x), batch.y).backward();
  optimizer.step();
  for (const Device d : devices)
    if (d.is_cuda()) Stream::current(d).synchronize();
}

SGD make_optimizer(Module& model) { return {model.parameters(), {.lr = 0.1, .momentum = 0.9}}; }

Values values_of(const Module& model) {
  Values out;
  for (const Tensor& p : model.parameters()) out.push_back(p.to_vector<float>());
  return out;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_of(Device device) {
  return device.is_cpu() ? 0 : static_cast<double>(device_allocator::stats(device).peak.value);
}
void reset_peak(Device device) {
  if (device.is_cuda()) device_allocator::reset_peak(device);
}

double difference(const Values& a, const Values& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double d = std::abs(double{a[i][j]} - b[i][j]) / (1 + std::abs(double{b[i][j]}));
      if (std::isnan(d)) return d;
      worst = std::max(worst, d);
    }
  return worst;
}

Values train_serial(const std::vector<Batch>& batches, const ComparisonOptions& o) {
  const auto model = make_model(o);
  SGD optimizer = make_optimizer(*model);
  for (const Batch& batch : batches)
    step([&](const Tensor& x) { return model->forward(x); }, optimizer, batch, {});
  return values_of(*model);
}

Values train_data_parallel(const std::vector<Device>& devices, const std::vector<Batch>& batches,
                           const ComparisonOptions& o, Usage& usage) {
  const auto model = make_model(o);
  model->to(devices[0]);
  DataParallel dp(*model, [&] { return make_model(o); }, devices, {.simulate_gil = o.simulate_gil});
  SGD optimizer = make_optimizer(*model);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (i == kComparisonWarmup) {
      dp.reset_traffic();
      for (const Device d : devices) reset_peak(d);
    }
    const Batch batch = batches[i].rows(0, batches[i].x.size(0), devices[0]);
    const auto start = std::chrono::steady_clock::now();
    step([&](const Tensor& x) { return dp.forward(x); }, optimizer, batch, devices);
    if (i >= kComparisonWarmup) seconds.push_back(seconds_since(start));
  }
  const LinkTraffic all = dp.root_traffic();
  usage.seconds = median(seconds);
  usage.sent = static_cast<double>(all.parameters.value) / o.steps;
  usage.received = static_cast<double>(all.gradients.value) / o.steps;
  usage.besides =
      static_cast<double>((all.inputs + all.output_gradients + all.outputs).value) / o.steps;
  usage.root_memory = peak_of(devices[0]);
  for (std::size_t i = 1; i < devices.size(); ++i)
    usage.other_memory = std::max(usage.other_memory, peak_of(devices[i]));
  return values_of(*model);
}

struct RankResult {
  double seconds = 0, sent = 0, besides = 0, memory = 0;
  Values parameters;
};

RankResult train_rank(MLP& model, const std::shared_ptr<comm::ProcessGroup>& group, Device device,
                      const std::vector<Batch>& batches, const ComparisonOptions& o) {
  model.to(device);
  const auto metered = std::make_shared<MeteredGroup>(group);
  DistributedDataParallel ddp(model, metered);
  SGD optimizer = make_optimizer(model);
  const std::int64_t first = group->rank() * o.rows;
  RankResult out;
  std::vector<double> seconds;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (i == kComparisonWarmup) {
      metered->reset_sent();
      reset_peak(device);
    }
    const Batch batch = batches[i].rows(first, first + o.rows, device);
    group->barrier();
    const auto start = std::chrono::steady_clock::now();
    step([&](const Tensor& x) { return ddp.forward(x); }, optimizer, batch, {device});
    group->barrier();
    if (i >= kComparisonWarmup) seconds.push_back(seconds_since(start));
  }
  out.seconds = median(seconds);
  const Bytes gradients = metered->sent_by_all_reduces();
  out.sent = static_cast<double>(gradients.value) / o.steps;
  out.besides = static_cast<double>((metered->sent() - gradients).value) / o.steps;
  // Gradients live in communication memory, which is not the allocator's.
  out.memory = device.is_cpu() ? 0 : peak_of(device) + static_cast<double>(metered->memory().value);
  out.parameters = values_of(model);
  return out;
}

Values train_ddp(const std::vector<Device>& devices, const std::vector<Batch>& batches,
                 const ComparisonOptions& o, Usage& usage) {
  const int world = static_cast<int>(devices.size());
  const auto rendezvous = std::make_shared<comm::ThreadRendezvous>(world);
  std::vector<std::unique_ptr<MLP>> models;  // made here: the default generator is one thread's
  for (int r = 0; r < world; ++r) models.push_back(make_model(o));
  std::vector<RankResult> results(devices.size());
  std::vector<std::exception_ptr> errors(devices.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < devices.size(); ++r)
    ranks.emplace_back([&, r] {
      try {
        const DeviceGuard on(devices[r]);
        const auto group = comm::init_process_group(
            std::make_shared<comm::ThreadBootstrap>(rendezvous, static_cast<int>(r)),
            {.timeout = o.timeout, .algorithm = comm::Algorithm::ring, .device = devices[r]});
        results[r] = train_rank(*models[r], group, devices[r], batches, o);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  usage.seconds = results[0].seconds;
  usage.root_memory = results[0].memory;
  for (std::size_t r = 0; r < results.size(); ++r) {
    usage.sent = std::max(usage.sent, results[r].sent);
    usage.besides = std::max(usage.besides, results[r].besides);
    if (r > 0) usage.other_memory = std::max(usage.other_memory, results[r].memory);
    if (results[r].parameters != results[0].parameters)
      throw Error("the ranks of DDP have different parameters: rank " + std::to_string(r) +
                  " and rank 0");
  }
  usage.received = usage.sent;
  return results[0].parameters;
}

}  // namespace

Comparison compare(int count, const ComparisonOptions& o) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back(o.kind == Device::Kind::cpu ? Device::cpu() : Device::cuda(i));
    require_device(devices.back());
  }
  const std::vector<Batch> batches = make_batches(count, o);
  Comparison out;
  out.devices = count;
  out.parameter_bytes = static_cast<double>(parameter_count(*make_model(o))) * sizeof(float);
  const Values serial = train_serial(batches, o);
  const Values dp = train_data_parallel(devices, batches, o, out.dp);
  const Values ddp = train_ddp(devices, batches, o, out.ddp);
  out.dp_from_serial = difference(dp, serial);
  out.ddp_from_serial = difference(ddp, serial);
  out.dp_from_ddp = difference(dp, ddp);
  return out;
}

}  // namespace ringsmith::apps
