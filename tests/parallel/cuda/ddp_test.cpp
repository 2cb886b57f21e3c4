// DistributedDataParallel with the model on a device, and ranks as threads. All numbers are whole,
// so every result must equal the result of one rank on the CPU.
#include "runtime/parallel/ddp.hpp"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/zero.hpp"
#include "runtime/parallel/plain_ddp.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/toy_models.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kGlobalBatch = 12;
constexpr std::uint32_t kSteps = 3;

using Values = std::vector<std::vector<float>>;

enum class Way { cpu, on_device, through_host };

comm::GroupOptions options_for(Way way, int rank) {
  comm::GroupOptions options;
  if (way == Way::on_device) options.device = Device::cuda(rank % device_count());
  return options;
}
Device model_device(Way way, int rank) {
  return way == Way::cpu ? Device::cpu() : Device::cuda(rank % device_count());
}

// Runs body(group, the model's device) on every rank.
std::vector<Values> run(
    Way way, int world,
    const std::function<Values(const std::shared_ptr<comm::ProcessGroup>&, Device)>& body) {
  return run_threads<Values>(
      world,
      [&](comm::ProcessGroup& group) {
        // Does not own the group, which outlives the body.
        const std::shared_ptr<comm::ProcessGroup> shared(std::shared_ptr<void>(), &group);
        return body(shared, model_device(way, group.rank()));
      },
      {}, [&](comm::GroupOptions& mine, int rank) { mine = options_for(way, rank); });
}

Values values_of(const Toy& toy) {
  Values out;
  for (const auto& [name, p] : toy.parameters) out.push_back(p.to_vector<float>());
  return out;
}

void move(const Toy& toy, Device device) {
  for (const auto& [name, p] : toy.parameters) p.move_to(device);
}

// Trains toy number `which` with several small buckets, which are rebuilt.
Values train(std::size_t which, const std::shared_ptr<comm::ProcessGroup>& group, Device device,
             bool find_unused) {
  const Toy toy = all_toys(5 + static_cast<std::uint32_t>(group->rank()))[which];
  move(toy, device);
  const double cap = toy.name == "uneven" ? 0.01 : 0.0001;
  DistributedDataParallel ddp(toy.parameters, {}, group,
                              {.bucket_cap_mb = cap,
                               .first_bucket_mb = cap,
                               .find_unused_parameters = find_unused,
                               .op = comm::ReduceOp::sum});
  SGD optimizer(toy.trained(), {.lr = 1.0});
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const Tensor x = integers({kGlobalBatch, toy.inputs}, step, 1);
    const Tensor mine = rows_of_rank(x, group->rank(), group->size()).to(device);
    optimizer.zero_grad(step % 2 == 0);
    ddp.forward([&] { return sum(relu(toy.forward(mine))); }).backward();
    optimizer.step();
  }
  for (const BucketTimes& times : ddp.statistics().buckets)
    if (!(times.launched >= 0 && times.collected >= times.launched &&
          ddp.statistics().finished >= times.collected))
      throw Error("the bucket's times are out of order");
  return values_of(toy);
}

}  // namespace

TEST_CASE("a model on a device trains as one rank on the CPU does, in every number of ranks") {
  struct Case {
    std::size_t toy;
    bool find_unused;
    std::vector<int> worlds;
  };
  const std::vector<Case> cases{
      {0, false, {1, 2, 3, 4}}, {0, true, {2}}, {1, false, {3}}, {2, false, {2}}, {3, false, {2}}};
  for (const auto& [toy, find_unused, worlds] : cases) {
    const auto body = [toy = toy, unused = find_unused](const auto& group, Device device) {
      return train(toy, group, device, unused);
    };
    const Values want = run(Way::cpu, 1, body)[0];
    for (const auto& p : want)
      for (const float v : p) REQUIRE(std::abs(v) < 1e7F);  // whole, hence exact
    for (const Way way : {Way::on_device, Way::through_host})
      for (const int world : worlds) {
        INFO("toy " << toy << ", world " << world
                    << (way == Way::on_device ? " on the device" : " through the host"));
        for (const Values& got : run(way, world, body)) CHECK(got == want);
      }
  }
}

TEST_CASE("gradients accumulated under no_sync are averaged once, on a device too") {
  const auto accumulate = [](const std::shared_ptr<comm::ProcessGroup>& group, Device device) {
    const Toy toy = mlp_toy(3);
    move(toy, device);
    DistributedDataParallel ddp(toy.parameters, {}, group, {.op = comm::ReduceOp::sum});
    const auto pass = [&](std::uint32_t seed) {
      const Tensor x =
          rows_of_rank(integers({kGlobalBatch, toy.inputs}, seed, 1), group->rank(), group->size());
      ddp.forward([&] { return sum(toy.forward(x.to(device))); }).backward();
    };
    {
      const auto guard = ddp.no_sync();
      pass(1);
      pass(2);
    }
    pass(3);
    Values grads;
    for (const Tensor& p : toy.trained()) grads.push_back(p.grad().to_vector<float>());
    return grads;
  };
  const Values want = run(Way::cpu, 1, accumulate)[0];
  for (const Way way : {Way::on_device, Way::through_host})
    for (const Values& got : run(way, 2, accumulate)) CHECK(got == want);
}

TEST_CASE("plain DDP averages gradients on a device, and through the host") {
  const auto average = [](const std::shared_ptr<comm::ProcessGroup>& group, Device device) {
    Values grads;
    for (const Toy& toy : all_toys(5)) {
      move(toy, device);
      const Tensor x =
          rows_of_rank(integers({kGlobalBatch, toy.inputs}, 3, 1), group->rank(), group->size());
      sum(toy.forward(x.to(device))).backward();
      average_gradients(*group, toy.trained());
      for (const Tensor& p : toy.trained()) {
        if (p.grad().device() != device) throw Error("the gradient is on another device");
        grads.push_back(p.grad().to_vector<float>());
      }
    }
    return grads;
  };
  const auto want = run(Way::cpu, 2, average);
  for (const Way way : {Way::on_device, Way::through_host}) CHECK(run(way, 2, average) == want);
}

TEST_CASE(
    "waiting for the device after backward takes away no overlap: buckets started within it") {
  for (const bool waits : {false, true}) {
    const auto seen = run(Way::on_device, 2, [&](const auto& group, Device device) {
      const Toy toy = all_toys(5)[0];
      move(toy, device);
      DistributedDataParallel ddp(
          toy.parameters, {}, group,
          {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .op = comm::ReduceOp::sum});
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        for (const Tensor& p : toy.trained()) p.set_grad({});
        const Tensor x = integers({kGlobalBatch, toy.inputs}, step, 1).to(device);
        ddp.forward([&] { return sum(relu(toy.forward(x))); }).backward();
        if (waits) synchronize(device);
      }
      const ReducerStatistics& times = ddp.statistics();
      float within = 0;
      for (const BucketTimes& bucket : times.buckets) within += bucket.launched < times.compute_end;
      return Values{{static_cast<float>(times.buckets.size()), within}};
    });
    for (const Values& rank : seen) {
      CHECK(rank[0][0] >= 2);
      CHECK(rank[0][1] >= rank[0][0] - 1);  // all except perhaps the last bucket
    }
  }
}

TEST_CASE("ZeRO-1 on devices has the parameters of one rank on the CPU") {
  for (const ZeroGradients gradients : {ZeroGradients::scattered, ZeroGradients::all_reduced}) {
    const auto body = [&](const auto& group, Device device) {
      const Toy toy = all_toys(5)[0];
      move(toy, device);
      DistributedDataParallel ddp(toy.parameters, {}, group,
                                  {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
      ZeroRedundancyOptimizer optimizer(
          ddp, [](auto p) { return std::make_unique<SGD>(std::move(p), SGDOptions{.lr = 0.25}); },
          gradients);
      // All ranks use the same input, so that the average is whole.
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        const Tensor x = integers({4, toy.inputs}, step, 1).to(device);
        ddp.forward([&] { return sum(relu(toy.forward(x))); }).backward();
        optimizer.step();
      }
      return values_of(toy);
    };
    const Values want = run(Way::cpu, 1, body)[0];
    for (const int world : {1, 2, 4})  // with 3 ranks, thirds are rounded
      for (const Values& got : run(Way::on_device, world, body)) CHECK(got == want);
    CHECK_THROWS_WITH(run(Way::through_host, 2, body),
                      ContainsSubstring("make the group on their device"));
  }
}

TEST_CASE("buffers of a device follow rank 0's, also those that stay on the CPU") {
  for (const Way way : {Way::on_device, Way::through_host}) {
    const auto got =
        run(way, 3, [](const std::shared_ptr<comm::ProcessGroup>& group, Device device) {
          const auto rank = static_cast<double>(group->rank());
          const Toy toy = mlp_toy(3);
          move(toy, device);
          const Tensor there = full({5}, rank).to(device), here = full({2}, 10 + rank);
          const Tensor strided = full({4, 3}, 20 + rank).to(device).transpose(0, 1);
          DistributedDataParallel ddp(
              toy.parameters, {{"there", there}, {"here", here}, {"strided", strided}}, group);
          there.fill_(1 + rank);
          ddp.synchronise_buffers();
          return Values{there.to_vector<float>(), here.to_vector<float>(),
                        strided.to_vector<float>()};
        });
    for (const Values& v : got) {
      CHECK(v[0] == std::vector<float>(5, 1));
      CHECK(v[1] == std::vector<float>(2, 10));
      CHECK(v[2] == std::vector<float>(12, 20));
    }
  }
}

TEST_CASE("models that are not where they should be are refused by every rank") {
  const auto complaint = [](Way way, const std::function<Device(int rank, int parameter)>& place) {
    std::string said;
    try {
      run(way, 2, [&](const std::shared_ptr<comm::ProcessGroup>& group, Device) {
        const Toy toy = mlp_toy(3);
        for (std::size_t p = 0; p < toy.parameters.size(); ++p)
          toy.parameters[p].second.move_to(place(group->rank(), static_cast<int>(p)));
        const DistributedDataParallel ddp(toy.parameters, {}, group);
        return Values{};
      });
    } catch (const UsageError& e) {
      said = e.what();
    }
    return said;
  };
  CHECK_THAT(
      complaint(Way::cpu, [](int r, int) { return r == 0 ? Device::cpu() : Device::cuda(0); }),
      ContainsSubstring("on a GPU"));
  if (device_count() < 4) return;  // the rest needs devices that no rank uses
  CHECK_THAT(complaint(Way::on_device, [](int r, int) { return Device::cuda(r + 2); }),
             ContainsSubstring("make the group on the model's device"));
  CHECK_THAT(complaint(Way::cpu, [](int, int p) { return Device::cuda(p % 2); }),
             ContainsSubstring("operands are on cuda:0 and on cuda:1"));
}
