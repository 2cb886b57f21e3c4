// Hooks, join, static graphs, SyncBatchNorm and checkpoints with the model on a device, and ranks
// as threads. The group is on the device or on the host. Where results must equal the CPU's,
// numbers are whole.
#include <cmath>

#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/power_sgd.hpp"
#include "runtime/parallel/beyond/sync_batch_norm.hpp"
#include "runtime/parallel/drift.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

enum class Way { cpu, on_device, through_host };

template <class Result>
std::vector<Result> run(Way way, int world,
                        const std::function<Result(const Group&, Device model)>& body) {
  const auto device_of = [](int rank) { return Device::cuda(rank % device_count()); };
  return run_threads<Result>(
      world,
      [&](comm::ProcessGroup& ranks) {
        return body(Group(std::shared_ptr<void>(), &ranks),
                    way == Way::cpu ? Device::cpu() : device_of(ranks.rank()));
      },
      {},
      [&](comm::GroupOptions& options, int rank) {
        if (way == Way::on_device) options.device = device_of(rank);
      });
}

void move(const Toy& toy, Device device) {
  for (const auto& [name, p] : toy.parameters) p.move_to(device);
}

double worst(const Values& a, const Values& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return HUGE_VAL;
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      const double d = std::abs(a[i][k] - b[i][k]);
      if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
    }
  }
  return most;
}

using MakeHook = std::function<CommHook(const Group&)>;

// Returns the gradients after three passes in small whole numbers, with rebuilt buckets.
Values gradients(const Group& group, Device device, const MakeHook& hook) {
  const Toy toy = mlp_toy(3);
  move(toy, device);
  DistributedDataParallel ddp(toy.parameters, {}, group,
                              {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
  ddp.register_comm_hook(hook(group));
  for (std::uint32_t step = 0; step < 3; ++step) {
    toy.zero_grad();
    const Tensor x =
        rows_of_rank(integers({12, toy.inputs}, step, 1), group->rank(), group->size());
    ddp.forward([&] { return mul(sum(toy.forward(x.to(device))), group->size()); }).backward();
  }
  Values out;
  for (const Tensor& p : toy.trained()) out.push_back(p.grad().to_vector<float>());
  return out;
}

}  // namespace

TEST_CASE("hooks on a device give the CPU's gradients") {
  for (const MakeHook& hook :
       {MakeHook(allreduce_hook), MakeHook(fp16_compress_hook), MakeHook(bf16_compress_hook)}) {
    const auto body = [&](const Group& g, Device d) { return gradients(g, d, hook); };
    for (const int world : {1, 2, 3}) {
      const Values want = run<Values>(Way::cpu, world, body)[0];
      for (const Way way : {Way::on_device, Way::through_host})
        for (const Values& got : run<Values>(way, world, body)) CHECK(got == want);
    }
  }
}

TEST_CASE("PowerSGD on a device stays within rounding of the CPU's, and the replicas equal") {
  const MakeHook hook = [](const Group& group) {
    return power_sgd_hook(std::make_shared<PowerSgdState>(
        group, PowerSgdOptions{.start_powersgd_iter = 2, .min_compression_rate = 1}));
  };
  const auto body = [&](const Group& g, Device d) { return gradients(g, d, hook); };
  const Values want = run<Values>(Way::cpu, 2, body)[0];
  double largest = 0;
  for (const auto& gradient : want)
    for (const float v : gradient) largest = std::max(largest, std::abs(static_cast<double>(v)));
  for (const Way way : {Way::on_device, Way::through_host}) {
    const auto got = run<Values>(way, 2, body);
    CHECK(got[0] == got[1]);
    CHECK(worst(got[0], want) <= 1e-5 * largest);
  }
}

TEST_CASE("join, no_sync and a static graph work with a model on a device") {
  for (const bool initial : {true, false}) {
    const auto body = [&](const Group& group, Device device) {
      const Toy toy = mlp_toy(3);
      move(toy, device);
      const Tensor unused = trained(zeros({4}));
      unused.move_to(device);
      NamedTensors parameters = toy.parameters;
      parameters.emplace_back("unused", unused);
      DistributedDataParallel ddp(
          parameters, {}, group,
          {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .static_graph = true});
      SGD optimizer(toy.trained(), {.lr = 1.0});
      const auto pass = [&](int step) {
        const Tensor x = integers({2, toy.inputs}, static_cast<std::uint32_t>(step), 1);
        const Tensor y = ddp.forward([&] { return sum(toy.forward(x.to(device))); });
        mul(y, 12.0 * (1 + group->rank())).backward();
      };
      ddp.join(
          [&] {
            for (int step = 0; step < 2 + group->rank(); ++step) {
              optimizer.zero_grad();
              {
                const auto local = ddp.no_sync();
                pass(step);
              }
              pass(step + 10);
              if (step == 0) optimizer.step();
            }
          },
          {.divide_by_initial_world_size = initial});
      check_drift(*group, parameters);
      if (unused.grad().defined()) throw Error("an unused parameter got a gradient");
      return values_of(parameters);
    };
    const Values want = run<Values>(Way::cpu, 3, body)[0];
    for (const auto& p : want)
      for (const float v : p) REQUIRE((v == std::round(v) && std::abs(v) < 1e7F));
    for (const Way way : {Way::on_device, Way::through_host})
      for (const Values& got : run<Values>(way, 3, body)) CHECK(got == want);
  }
}

TEST_CASE("replicas that have drifted apart on devices are found") {
  for (const Way way : {Way::on_device, Way::through_host})
    for (const std::string& said : run<std::string>(way, 3, [](const Group&group, Device device) {
           const Tensor w = full({5}, group->rank() == 2 ? 1.0 : 2.0).to(device);
           return complaint_of([&] { check_drift(*group, {{"w", w}}); });
         }))
      CHECK(said ==
            "the replicas have drifted apart: 'w' has one value on ranks 0, 1 and another on "
            "rank 2; let all ranks start from one state and make the same updates");
}

TEST_CASE("a checkpointed GPT on a device has the bits of one that is not, with dropout") {
  const auto body = [](const Group& group, Device device, bool checkpointing) {
    manual_seed(3);
    GPT model({.vocabulary = 11,
               .context = 6,
               .layers = 2,
               .dim = 8,
               .heads = 2,
               .dropout = 0.25,
               .activation_checkpointing = checkpointing});
    model.to(device);
    DistributedDataParallel ddp(model, group);
    SGD optimizer(model.parameters(), {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      std::vector<std::int64_t> tokens;
      for (int i = 0; i < 12; ++i) tokens.push_back((i * i + step) % 11);
      const Tensor x = from_vector(tokens, {2, 6}).to(device);
      cross_entropy(reshape(ddp.forward(x), {-1, 11}), reshape(x, {-1})).backward();
      optimizer.step();
    }
    return values_of(model.named_parameters());
  };
  // One rank, because the default generator is not thread-safe.
  const auto with = [&](bool checkpointing) {
    return run<Values>(Way::on_device, 1,
                       [&](const Group& g, Device d) { return body(g, d, checkpointing); })[0];
  };
  const Values plain = with(false);
  CHECK(plain.size() > 20);
  CHECK(with(true) == plain);
}

TEST_CASE("SyncBatchNorm under DDP on devices trains as on the CPU") {
  const auto body = [](const Group& group, Device device) {
    Generator g(3);
    Sequential net;
    net.add<Conv2d>(2, 3, Pair{3, 3});
    net.add<BatchNorm2d>(3);
    net.add<ReLU>();
    net.add<Flatten>();
    for (const Tensor& p : net.parameters()) fill_normal(p.span<float>(), 0.5, 1, g);
    net.to(device);
    convert_sync_batchnorm(net, group);
    DistributedDataParallel ddp(net, group);
    SGD optimizer(net.parameters(), {.lr = 0.01});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      Generator data(static_cast<std::uint64_t>(10 * step + group->rank()));
      const Tensor x = randn({2 + group->rank(), 2, 5, 5}, data).to(device);
      const Tensor y = ddp.forward(x);
      sum(mul(y, y)).backward();
      optimizer.step();
    }
    Values out = values_of(net.named_parameters());
    for (std::vector<float>& v : values_of(net.named_buffers())) out.push_back(std::move(v));
    return out;
  };
  const Values want = run<Values>(Way::cpu, 3, body)[0];
  for (const Way way : {Way::on_device, Way::through_host})
    for (const Values& got : run<Values>(way, 3, body)) CHECK(worst(got, want) <= 2e-5);
}
