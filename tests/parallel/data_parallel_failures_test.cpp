// Tests DataParallel's traffic on each link, its memory on each device, its order of execution, and
// its messages.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/parallel/replicas.hpp"
#include "tests/parallel/data_parallel_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

// Calls a function with its rows in forward, and another in backward.
class Watched : public Module {
 public:
  using Watcher = std::function<void(const Tensor& rows)>;
  Watched(Watcher forward, Watcher backward)
      : on_forward_(std::move(forward)), on_backward_(std::move(backward)) {
    register_module("net", net);
  }
  Tensor forward(const Tensor& x) override {
    if (on_forward_) on_forward_(x);
    const Tensor y = net(x);
    Tensor out = y.clone();
    record("WatchedBackward", {y}, out, {}, [watcher = on_backward_](const Saved&, Tensor g) {
      if (watcher) watcher(g);
      return std::vector<Tensor>{std::move(g)};
    });
    return out;
  }
  Net net;

 private:
  Watcher on_forward_, on_backward_;
};

struct Rig {
  Rig(int n, const Watched::Watcher& forward, const Watched::Watcher& backward,
      DataParallelOptions options = {})
      : model(forward, backward) {
    model.to(replica_devices(n)[0]);
    dp = std::make_unique<DataParallel>(
        model, [=] { return std::make_unique<Watched>(forward, backward); }, replica_devices(n),
        options);
  }
  Watched model;
  std::unique_ptr<DataParallel> dp;
};

}  // namespace

TEST_CASE("counters: every byte over every link of a step", "[data_parallel]") {
  const int n = GENERATE(1, 2, 3, 4, 8);
  const std::int64_t rows = 12;
  Net net;
  net.to(replica_devices(n)[0]);
  DataParallel dp(
      net, [] { return std::make_unique<Net>(); }, replica_devices(n));
  const Tensor x = integers({rows, 5}, 1).to(net.device()).requires_grad_();
  sum(dp.forward(x)).backward();
  const std::size_t frozen = 7, trained = 7 * 5 + 7 + 3 * 7 + 3;
  const std::int64_t each = (rows + n - 1) / n;  // n = 8 makes six chunks
  for (int i = 0; i < n; ++i) {
    INFO("replica " << i << " of " << n);
    const LinkTraffic& link = dp.traffic()[static_cast<std::size_t>(i)];
    const auto mine =
        i == 0
            ? 0
            : static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(each, rows - i * each)));
    const std::size_t used = mine > 0 ? 1 : 0;
    CHECK(link.parameters.value == used * (frozen + trained) * sizeof(float));
    CHECK(link.gradients.value == used * trained * sizeof(float));
    CHECK(link.inputs.value == mine * 5 * sizeof(float));
    CHECK(link.input_gradients.value == mine * 5 * sizeof(float));
    CHECK(link.outputs.value == mine * 3 * sizeof(float));
    CHECK(link.output_gradients.value == mine * 3 * sizeof(float));
    CHECK(link.from_root() == link.parameters + link.inputs + link.output_gradients);
  }
  dp.reset_traffic();
  CHECK(dp.root_traffic().to_root() == Bytes(0));
}

TEST_CASE("after a step the other devices hold nothing, the root its gradients",
          "[data_parallel]") {
  if (device().is_cpu()) return;  // the host's allocator serves all replicas
  const std::vector<Device> devices = replica_devices(4);
  Net net;
  net.to(devices[0]);
  DataParallel dp(
      net, [] { return std::make_unique<Net>(); }, devices);
  const auto in_use = [](Device d) { return device_allocator::stats(d).current.value; };
  std::vector<std::size_t> before;
  for (const Device d : devices) before.push_back(in_use(d));
  sum(dp.forward(integers({8, 5}, 1))).backward();
  for (std::size_t i = 1; i < devices.size(); ++i) CHECK(in_use(devices[i]) == before[i]);
  CHECK(in_use(devices[0]) == before[0] + sizeof(float) * (7 * 5 + 7 + 3 * 7 + 3));
  const Tensor y = dp.forward(integers({8, 5}, 1));  // the graph keeps the parameters alive
  for (std::size_t i = 1; i < devices.size(); ++i) CHECK(in_use(devices[i]) > before[i]);
}

TEST_CASE("replicas run at once, or one at a time when asked to", "[data_parallel]") {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, most = 0;
  const auto meet = [&](const Tensor&) {
    std::unique_lock lock(mutex);
    most = std::max(most, ++inside);
    changed.notify_all();
    // Long enough for the other replicas to arrive if they run concurrently.
    (void)changed.wait_for(lock, std::chrono::milliseconds(most < 3 ? 300 : 0),
                           [&] { return most == 3; });
    --inside;
  };
  const Tensor x = integers({6, 5}, 1);
  (void)Rig(3, meet, {}, {.simulate_gil = true}).dp->forward(x);
  CHECK(most == 1);
  most = 0;
  for (int attempt = 0; attempt < 20 && most < 3; ++attempt) (void)Rig(3, meet, {}).dp->forward(x);
  CHECK(most == 3);
}

TEST_CASE("an error in a replica names it, forward and backward", "[data_parallel]") {
  // 8 rows in chunks of 2. Row 4 begins the chunk of replica 2.
  const std::vector<Device> devices = replica_devices(4);
  const Tensor good = full({8, 5}, 1.0);
  Tensor bad = full({8, 5}, 1.0);
  bad.slice(0, 4, 5).fill_(-77.0);
  const auto stumble = [](const Tensor& rows) {
    for (const float v : rows.to_vector<float>()) require(v > -50.0F, "cannot read a row of -77");
  };
  {
    Rig rig(4, stumble, {});
    try {
      (void)rig.dp->forward(bad);
      FAIL("no error");
    } catch (const ReplicaError& e) {
      CHECK(e.what() == "replica 2 on " + devices[2].str() + ": cannot read a row of -77");
      CHECK(e.replica() == 2);
      CHECK(e.device() == devices[2]);
      CHECK(e.exit_code() == ExitCode::usage);
    }
    bad.slice(0, 2, 3).fill_(-77.0);
    CHECK_THROWS_WITH(rig.dp->forward(bad), ContainsSubstring("replica 1 on"));
    sum(rig.dp->forward(good)).backward();  // it still works afterwards
    CHECK(rig.model.net.first.weight.grad().defined());
  }
  Rig rig(4, {}, stumble);
  const Tensor y = rig.dp->forward(good);
  Tensor gradient = full(y.sizes(), 1.0);
  gradient.slice(0, 7, 8).fill_(-77.0);
  CHECK_THROWS_WITH(y.backward(gradient.to(y.device())),
                    ContainsSubstring("replica 3 on " + devices[3].str()));
  sum(rig.dp->forward(good)).backward();
}

TEST_CASE("a second backward through one forward is refused, also with retain_graph",
          "[data_parallel]") {
  Net net;
  net.to(replica_devices(2)[0]);
  DataParallel dp(
      net, [] { return std::make_unique<Net>(); }, replica_devices(2));
  const Tensor loss = sum(dp.forward(integers({4, 5}, 1)));
  backward({loss}, {}, true);
  CHECK_THROWS_WITH(backward({loss}),
                    ContainsSubstring("DataParallel: second backward for one forward"));
}

TEST_CASE("what does not fit is refused by name", "[data_parallel]") {
  const std::vector<Device> devices = replica_devices(2);
  const auto another = [] { return std::make_unique<Net>(); };
  Net net;
  net.to(devices[0]);
  CHECK_THROWS_WITH(DataParallel(net, another, {}), ContainsSubstring("no devices"));
  CHECK_THROWS_WITH(DataParallel(net, another, {Device::cuda(999), Device::cpu()}),
                    ContainsSubstring("there is no device cuda:999"));
  const auto other = [] { return std::make_unique<Dense>(5, 4, 1, 1.0); };
  CHECK_THROWS_WITH(DataParallel(net, other, devices),
                    ContainsSubstring("parameter 'gain' [7] f32 where the replica has "
                                      "parameter 'weight' [4, 5] f32"));
  if (device().is_cuda()) {
    CHECK_THROWS_WITH(DataParallel(net, another, {devices[1], devices[0]}),
                      ContainsSubstring("move it there with to()"));
    DataParallel dp(net, another, devices);
    net.to(devices[1]);
    CHECK_THROWS_WITH(dp.forward(integers({4, 5}, 1)), ContainsSubstring("the root is "));
  }
}

TEST_CASE("making replicas draws nothing from the default generator", "[data_parallel]") {
  Linear model(3, 2);
  model.to(replica_devices(2)[0]);
  const std::string before = default_generator().state();
  DataParallel dp(
      model, [] { return std::make_unique<Linear>(3, 2); }, replica_devices(2));
  CHECK(default_generator().state() == before);
}
