// Compares plain data-parallel training with DistributedDataParallel bit for bit.
#include "runtime/parallel/plain_ddp.hpp"

#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

Values gradients_of(const Toy& toy) {
  Values out;
  for (const Tensor& p : toy.trained())
    out.push_back(p.grad().defined() ? p.grad().to_vector<float>() : std::vector<float>{-99});
  return out;
}

}  // namespace

TEST_CASE("plain DDP: gradients of every toy equal DistributedDataParallel's, bit for bit",
          "[plain_ddp]") {
  // Sums of whole numbers are exact in any order, and every rank scales by the same fl(1/W).
  const int world = GENERATE(1, 2, 3);
  for (std::size_t t = 0; t < all_toys(1).size(); ++t) {
    struct Result {
      Values plain, real;
    };
    const auto results = run_ranks<std::vector<Result>>(world, [&](const Group& group) {
      const Toy plain = all_toys(1)[t], real = all_toys(1)[t];
      DistributedDataParallel ddp(real.parameters, {}, group,
                                  {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
      std::vector<Tensor> parameters;
      for (const auto& [name, p] : plain.parameters) parameters.push_back(p);
      std::vector<Result> steps;
      for (std::uint32_t step = 0; step < 3; ++step) {
        const Tensor x =
            rows_of_rank(integers({2 * world, plain.inputs}, 7 + step), group->rank(), world);
        plain.zero_grad();
        sum(plain.forward(x)).backward();
        average_gradients(*group, parameters);
        real.zero_grad();
        ddp.forward([&] { return sum(real.forward(x)); }).backward();
        steps.push_back({gradients_of(plain), gradients_of(real)});
      }
      return steps;
    });
    for (int rank = 0; rank < world; ++rank)
      for (std::size_t step = 0; step < 3; ++step) {
        INFO(all_toys(1)[t].name << ", " << world << " ranks, rank " << rank << ", step " << step);
        const auto& [plain, real] = results[static_cast<std::size_t>(rank)][step];
        CHECK(plain == real);
        CHECK(plain == results[0][step].plain);
      }
  }
}

TEST_CASE("plain DDP: a training has DistributedDataParallel's bits after every step",
          "[plain_ddp]") {
  // Sums are rounded. With two ranks a sum has only one order, and with three, tree uses one order
  // for all elements. By default, the order would depend on the position in messages above 16 KiB.
  const int world = GENERATE(1, 2, 3);
  std::vector<std::unique_ptr<MLP>> models;  // before the threads: they share the default generator
  for (int i = 0; i < 2 * world; ++i) {
    manual_seed(3);
    models.push_back(std::make_unique<MLP>(std::vector<std::int64_t>{31, 67, 129, 5}));
  }
  const auto results = run_ranks<std::vector<Values>>(world, [&](const Group& group) {
    group->set_algorithm(world == 2 ? comm::Algorithm::automatic : comm::Algorithm::tree);
    const auto r = static_cast<std::size_t>(group->rank());
    MLP &plain = *models[2 * r], &real = *models[2 * r + 1];
    DistributedDataParallel ddp(real, group, {.bucket_cap_mb = 0.03, .first_bucket_mb = 0.01});
    AdamW plain_optimizer(plain.parameters(), {.lr = 0.01});
    AdamW real_optimizer(real.parameters(), {.lr = 0.01});
    std::vector<Values> out;
    for (unsigned step = 0; step < 5; ++step) {
      Generator g(100 * step + static_cast<unsigned>(group->rank()));
      const Tensor x = randn({3, 31}, g), y = randn({3, 5}, g);
      plain_optimizer.zero_grad();
      mse_loss(plain.forward(x), y).backward();
      average_gradients(*group, plain.parameters());
      plain_optimizer.step();
      real_optimizer.zero_grad();
      mse_loss(ddp.forward(x), y).backward();
      real_optimizer.step();
      out.push_back(values_of(plain.named_parameters()));
      out.push_back(values_of(real.named_parameters()));
    }
    return out;
  });
  for (const auto& of_rank : results)
    for (std::size_t i = 0; i < of_rank.size(); i += 2) {
      INFO(world << " ranks, step " << i / 2);
      CHECK(of_rank[i] == of_rank[i + 1]);
      CHECK(of_rank[i] == results[0][i]);
    }
  CHECK(results[0].front() != results[0].back());
}

TEST_CASE("plain DDP: a gradient that a rank lacks counts as zeros", "[plain_ddp]") {
  const auto results = run_ranks<Values>(2, [](const Group& group) {
    const Tensor used = trained(ones({3})), branch = trained(ones({2})), never = trained(ones({5}));
    const Tensor real_used = trained(ones({3})), real_branch = trained(ones({2}));
    const auto loss = [&](const Tensor& a, const Tensor& b) {
      return group->rank() == 0 ? add(sum(mul(a, 2.0)), sum(mul(b, 6.0))) : sum(mul(a, 4.0));
    };
    loss(used, branch).backward();
    average_gradients(*group, {used, branch, never});
    DistributedDataParallel ddp({{"used", real_used}, {"branch", real_branch}}, {}, group,
                                {.find_unused_parameters = true});
    ddp.forward([&] { return loss(real_used, real_branch); }).backward();
    return Values{used.grad().to_vector<float>(), real_used.grad().to_vector<float>(),
                  branch.grad().to_vector<float>(), real_branch.grad().to_vector<float>(),
                  never.grad().to_vector<float>()};
  });
  for (const Values& v : results)
    CHECK(v == Values{{3, 3, 3}, {3, 3, 3}, {3, 3}, {3, 3}, {0, 0, 0, 0, 0}});
}

TEST_CASE("plain DDP: frozen parameters and gradients with gaps", "[plain_ddp]") {
  const auto results = run_ranks<Values>(2, [](const Group& group) {
    const Tensor frozen = ones({4}), p = trained(ones({2, 3}));
    const auto r = static_cast<float>(group->rank());
    p.set_grad(from_vector<float>({r, 1, 2, 3, 4, 5 + r}, {3, 2}).transpose(0, 1));
    average_gradients(*group, {frozen, p});
    const Tensor in_place = trained(ones({3}));
    in_place.set_grad(full({3}, 2.0 * r));
    const float* data = in_place.grad().data<float>();
    average_gradients(*group, {in_place});
    return Values{p.grad().to_vector<float>(),
                  in_place.grad().to_vector<float>(),
                  {frozen.grad().defined() ? 1.0F : 0.0F,
                   in_place.grad().data<float>() == data ? 1.0F : 0.0F}};
  });
  for (const Values& v : results) CHECK(v == Values{{0.5, 2, 4, 1, 3, 5.5}, {1, 1, 1}, {0, 1}});
}
