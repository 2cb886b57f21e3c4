// DataParallel gives the same results as one device.
#include <array>

#include "runtime/autograd/autocast.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/parallel/replicas.hpp"
#include "tests/parallel/data_parallel_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

std::vector<Tensor> whole_batches(std::int64_t rows) {
  std::vector<Tensor> out;
  for (std::uint32_t step = 0; step < 3; ++step) out.push_back(integers({rows, 5}, 40 + step, 1));
  return out;
}

std::vector<Tensor> normal_batches(std::int64_t rows) {
  Generator generator(7);
  std::vector<Tensor> out;
  for (int step = 0; step < 3; ++step) out.push_back(randn({rows, 5}, generator));
  return out;
}

}  // namespace

TEST_CASE("rows are dealt as torch.chunk deals them", "[data_parallel]") {
  using Starts = std::vector<std::int64_t>;
  CHECK(chunk_starts(10, 4) == Starts{0, 3, 6, 9, 10});
  CHECK(chunk_starts(5, 4) == Starts{0, 2, 4, 5});  // three chunks
  CHECK(chunk_starts(8, 4) == Starts{0, 2, 4, 6, 8});
  CHECK(chunk_starts(3, 8) == Starts{0, 1, 2, 3});
  CHECK(chunk_starts(9, 8) == Starts{0, 2, 4, 6, 8, 9});
  CHECK(chunk_starts(1, 4) == Starts{0, 1});
  CHECK(chunk_starts(7, 1) == Starts{0, 7});
  CHECK(chunk_starts(0, 4) == Starts{0, 0});
}

TEST_CASE("replicas compute under the caller's autocast", "[data_parallel]") {
  const std::vector<Device> devices{device(), device()};
  std::array<AutocastState, 2> seen;
  const auto look = [&] {
    parallel_apply(devices, [&](std::size_t i) { seen[i] = autocast_state(); });
  };
  {
    const Autocast autocast(DType::f16);
    look();
    for (const AutocastState& s : seen) CHECK((s.enabled && s.dtype == DType::f16));
  }
  look();
  for (const AutocastState& s : seen) CHECK_FALSE(s.enabled);
}

TEST_CASE("whole numbers: outputs, gradients and parameters are those of one device bit for bit",
          "[data_parallel]") {
  const int n = GENERATE(1, 2, 3, 4, 8);
  for (const std::int64_t rows : {1, 2, 3, 5, 8, 13, 16}) {
    INFO(n << " replicas, " << rows << " rows");
    const Trained alone = train_serial(whole_batches(rows), 1, 1.0 / 1024);
    // All parameters must have few bits, so that sums are exact in any order.
    for (const auto& parameter : alone.parameters)
      for (const float v : parameter) REQUIRE(std::abs(v) < 1e4F);
    CHECK(alone.parameters != train_serial(whole_batches(rows), 1, 0).parameters);
    const Trained together = train_replicated(n, whole_batches(rows), 1, 1.0 / 1024);
    CHECK(together.outputs == alone.outputs);
    CHECK(together.gradients == alone.gradients);
    CHECK(together.parameters == alone.parameters);
  }
}

TEST_CASE("ordinary numbers: the serial results but for rounding, and the same bits each time",
          "[data_parallel]") {
  const int n = GENERATE(1, 2, 3, 4, 8);
  for (const std::int64_t rows : {1, 7, 30}) {
    INFO(n << " replicas, " << rows << " rows");
    const Trained alone = train_serial(normal_batches(rows), 0.3, 0.01);
    const Trained together = train_replicated(n, normal_batches(rows), 0.3, 0.01);
    CHECK(difference(together.outputs, alone.outputs) < 1e-5);
    CHECK(difference(together.gradients, alone.gradients) < 1e-5);
    CHECK(difference(together.parameters, alone.parameters) < 1e-5);
    CHECK(train_replicated(n, normal_batches(rows), 0.3, 0.01) == together);
    CHECK(train_replicated(n, normal_batches(rows), 0.3, 0.01, {.simulate_gil = true}) == together);
  }
}

TEST_CASE("the gradient flows on to the input, also when that is elsewhere", "[data_parallel]") {
  Net net(3);
  net.to(replica_devices(3)[0]);
  const Tensor x = integers({7, 5}, 5).requires_grad_();  // on the CPU
  sum(net(to(x, net.device()))).backward();
  const std::vector<float> expected = x.grad().to_vector<float>();
  x.set_grad({});
  net.zero_grad();
  DataParallel dp(
      net, [] { return std::make_unique<Net>(); }, replica_devices(3));
  sum(dp.forward(x)).backward();
  CHECK(x.grad().device().is_cpu());
  CHECK(x.grad().to_vector<float>() == expected);
  CHECK_FALSE(net.gain.grad().defined());  // frozen
}

TEST_CASE("two forwards before their backwards add up", "[data_parallel]") {
  Net net(3);
  const std::vector<Device> devices = replica_devices(2);
  net.to(devices[0]);
  const Tensor a = integers({5, 5}, 1).to(devices[0]), b = integers({4, 5}, 2).to(devices[0]);
  sum(net(a)).backward();
  sum(net(b)).backward();
  const std::vector<float> expected = net.first.weight.grad().to_vector<float>();
  net.zero_grad();
  Tensor ya, yb;
  {
    DataParallel dp(
        net, [] { return std::make_unique<Net>(); }, devices);
    ya = dp.forward(a);
    yb = dp.forward(b);
  }  // backward works after the object is gone
  sum(yb).backward();
  sum(ya).backward();
  CHECK(net.first.weight.grad().to_vector<float>() == expected);
}

TEST_CASE("without recording there is no graph, and evaluation reaches the replicas",
          "[data_parallel]") {
  Sequential model;
  model.add<Net>(3);
  model.add<Dropout>(0.5);
  model.to(replica_devices(2)[0]);
  const auto another = [] {
    auto other = std::make_unique<Sequential>();
    other->add<Net>(4);
    other->add<Dropout>(0.5);
    return other;
  };
  DataParallel dp(model, another, replica_devices(2), {.simulate_gil = true});
  const Tensor x = integers({6, 5}, 5);
  model.eval();
  {
    const NoGradGuard no_grad;
    const Tensor y = dp.forward(x);
    CHECK_FALSE(y.requires_grad());
    CHECK(y.to_vector<float>() == model(x.to(model.device())).to_vector<float>());
  }
  model[0].train();  // children may differ from their parent
  CHECK(dp.forward(x).to_vector<float>() == model(x.to(model.device())).to_vector<float>());
  model.train();
  CHECK(dp.forward(x).to_vector<float>() != model(x.to(model.device())).to_vector<float>());
}

TEST_CASE("one number from each replica becomes a vector", "[data_parallel]") {
  class Total : public Module {
   public:
    Total() { register_module("net", net); }
    Tensor forward(const Tensor& x) override { return sum(net(x)); }
    Net net;
  };
  Total model;
  const std::vector<Device> devices = replica_devices(3);
  model.to(devices[0]);
  const Tensor x = integers({5, 5}, 6);  // chunks of 2, 2, 1
  DataParallel dp(
      model, [] { return std::make_unique<Total>(); }, devices);
  const Tensor y = dp.forward(x);
  REQUIRE(y.sizes() == Shape{3});
  for (int i = 0; i < 3; ++i) {
    const Tensor rows = x.slice(0, 2 * i, std::min(2 * i + 2, 5)).contiguous();
    CHECK(y.to_vector<float>()[static_cast<std::size_t>(i)] ==
          model(rows.to(devices[0])).item<float>());
  }
  sum(y).backward();
  const std::vector<float> got = model.net.second.weight.grad().to_vector<float>();
  model.zero_grad();
  model(x.to(devices[0])).backward();
  CHECK(got == model.net.second.weight.grad().to_vector<float>());
}

TEST_CASE("running statistics are those of replica 0's rows, as in PyTorch", "[data_parallel]") {
  class Norm : public Module {
   public:
    Norm() {
      register_parameter("weight", weight, full({5}, 1.0));
      register_parameter("bias", bias, full({5}, 0.0));
      register_buffer("mean", mean, full({5}, 0.0));
      register_buffer("var", var, full({5}, 1.0));
    }
    Tensor forward(const Tensor& x) override {
      return batch_norm(x, weight, bias, mean, var, training());
    }
    Tensor weight, bias, mean, var;
  };
  Norm model, reference;
  const std::vector<Device> devices = replica_devices(2);
  model.to(devices[0]);
  reference.to(devices[0]);
  const Tensor x = integers({9, 5}, 8).to(devices[0]);
  DataParallel dp(
      model, [] { return std::make_unique<Norm>(); }, devices);
  (void)dp.forward(x);
  (void)reference(x.slice(0, 0, 5).contiguous());
  CHECK(model.mean.to_vector<float>() == reference.mean.to_vector<float>());
  CHECK(model.var.to_vector<float>() == reference.var.to_vector<float>());
  CHECK(model.mean.to_vector<float>() != std::vector<float>(5, 0.0F));
}

TEST_CASE("whole-number inputs, matrix products, and a weight that two layers share",
          "[data_parallel]") {
  class Speaker : public Module {
   public:
    Speaker() : table(11, 6), head(6, 11, false) {
      register_module("table", table);
      register_module("head", head);
      head.weight = table.weight;
      head.weight.detach().copy_(integers({11, 6}, 3));
    }
    Tensor forward(const Tensor& tokens) override { return head(table(tokens)); }
    Embedding table;
    Linear head;
  };
  const std::vector<Device> devices = replica_devices(3);
  Speaker model;
  model.to(devices[0]);
  REQUIRE(model.parameters().size() == 1);
  const Tensor tokens =
      from_vector(std::vector<std::int64_t>{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7}, {7, 2});
  const auto gradient = [&](const Tensor& y) {
    model.zero_grad();
    sum(relu(y)).backward();
    return model.table.weight.grad().to_vector<float>();
  };
  const std::vector<float> expected = gradient(model(tokens.to(devices[0])));
  DataParallel dp(
      model, [] { return std::make_unique<Speaker>(); }, devices);
  CHECK(gradient(dp.forward(tokens)) == expected);
  // The weight is copied once per replica, although it is used twice.
  CHECK(dp.traffic()[1].parameters == Bytes(sizeof(float) * 11 * 6));
  CHECK(dp.traffic()[1].inputs == Bytes(sizeof(std::int64_t) * 3 * 2));
}
