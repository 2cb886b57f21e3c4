// Compares DDP's gradients bit for bit with one process that computes the whole batch. All values
// are whole numbers.
#include <cmath>
#include <limits>

#include "tests/multi/ddp_support.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kRowsPerRank = 3;

void serial_step(const Toy& toy, const Tensor& x) {
  toy.zero_grad();
  sum(toy.forward(x)).backward();
}

// The loss of this rank's rows, multiplied by the number of ranks if gradients are averaged.
Tensor local_loss(const Toy& toy, const Tensor& x, comm::ReduceOp op) {
  const Tensor loss = sum(toy.forward(x));
  return op == comm::ReduceOp::avg ? mul(loss, static_cast<double>(group().size())) : loss;
}

// fl(fl(1/W) * W k) = k for every whole number k if fl(1/W) has a relative error of at most 2^-25,
// as in all worlds of these tests except 7.
bool average_is_exact() { return group().size() != 7; }

void check_equal_to_serial(const Toy& toy, const Toy& serial, comm::ReduceOp op) {
  const auto mine = toy.trained(), theirs = serial.trained();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    INFO(toy.name << ": trained parameter " << i);
    REQUIRE(mine[i].grad().defined());
    const auto got = mine[i].grad().to_vector<float>();
    const auto expected = theirs[i].grad().to_vector<float>();
    if (op == comm::ReduceOp::sum || average_is_exact()) {
      REQUIRE(got == expected);
      continue;
    }
    float largest = 1;
    for (const float v : expected) largest = std::max(largest, std::abs(v));
    for (std::size_t k = 0; k < got.size(); ++k)
      REQUIRE(std::abs(got[k] - expected[k]) <= 1e-6F * largest);
  }
}

}  // namespace

TEST_CASE("gradients of every toy equal the serial ones, before and after the rebuild", "[ddp]") {
  const int world = group().size(), rank = group().rank();
  struct Case {
    comm::ReduceOp op;
    double cap;
    bool find_unused;
  };
  const auto [op, cap, find_unused] =
      GENERATE(Case{comm::ReduceOp::avg, 25, false}, Case{comm::ReduceOp::avg, 0.0001, false},
               Case{comm::ReduceOp::sum, 0.0001, false}, Case{comm::ReduceOp::avg, 0.0001, true});
  const auto serials = all_toys(1);
  const auto toys = all_toys(1 + 100 * static_cast<std::uint32_t>(rank));
  for (std::size_t t = 0; t < toys.size(); ++t) {
    const Toy &toy = toys[t], &serial = serials[t];
    INFO(toy.name << " op " << comm::name_of(op) << " cap " << cap << " find_unused "
                  << find_unused);
    if (world > 1) REQUIRE(variants(bits_of_parameters(toy)) > 1);
    DistributedDataParallel ddp(toy.parameters, {}, shared_group(),
                                {.bucket_cap_mb = cap,
                                 .first_bucket_mb = std::min(cap, 1.0),
                                 .find_unused_parameters = find_unused,
                                 .op = op});
    REQUIRE(bits_of_parameters(toy) == bits_of_parameters(serial));
    for (std::uint32_t step = 0; step < 3; ++step) {
      const Tensor x = integers({kRowsPerRank * world, toy.inputs}, 77 + step);
      serial_step(serial, x);
      toy.zero_grad();
      const auto reduction = op;  // clang 14 cannot capture structured bindings in C++20 lambdas
      const Tensor loss =
          ddp.forward([&] { return local_loss(toy, rows_of_rank(x, rank, world), reduction); });
      loss.backward();
      check_equal_to_serial(toy, serial, op);
    }
    REQUIRE(ddp.reducer().rebuilt() == !find_unused);
    if (cap < 1 && toy.name == "uneven") REQUIRE(ddp.reducer().plan().buckets.size() > 2);
    for (const auto& [name, p] : toy.parameters)
      if (!p.requires_grad()) REQUIRE_FALSE(p.grad().defined());
  }
}

TEST_CASE("frozen parameters keep rank 0's values", "[ddp]") {
  const Toy toy = frozen_toy(static_cast<std::uint32_t>(group().rank()));
  toy.parameters[1].second.fill_(3.0 + group().rank());
  const DistributedDataParallel ddp(toy.parameters, {}, shared_group());
  REQUIRE(toy.parameters[1].second.to_vector<float>() == std::vector<float>(6, 3.0F));
  REQUIRE(variants(bits_of_parameters(toy)) == 1);
}

TEST_CASE("accumulation under no_sync equals the big batch and communicates once", "[ddp]") {
  const int world = group().size(), rank = group().rank();
  const Toy toy = mlp_toy(5), serial = mlp_toy(5);
  DistributedDataParallel ddp(toy.parameters, {}, shared_group(), {.op = comm::ReduceOp::sum});
  for (int step = 0; step < 3; ++step) {
    const Tensor x = integers({4 * kRowsPerRank * world, toy.inputs}, 11);
    serial_step(serial, x);
    if (step % 2 == 0)
      toy.zero_grad();
    else  // zeros, not none: the gradients keep their memory
      for (const Tensor& p : toy.trained()) p.grad().zero_();
    const Tensor mine = rows_of_rank(x, rank, world);
    for (int micro = 0; micro < 4; ++micro) {
      const Tensor rows = rows_of_rank(mine, micro, 4);
      const auto forward = [&] { return local_loss(toy, rows, comm::ReduceOp::sum); };
      const auto before = ddp.statistics().step;
      if (micro < 3) {
        const auto guard = ddp.no_sync();
        ddp.forward(forward).backward();
        REQUIRE(ddp.statistics().step == before);
        // If the ranks' gradients were equal here, the test would not notice a missing all-reduce.
        if (world > 1) REQUIRE(variants(bits_of_gradients(toy)) > 1);
      } else {
        ddp.forward(forward).backward();
        REQUIRE(ddp.statistics().step == before + 1);
      }
    }
    check_equal_to_serial(toy, serial, comm::ReduceOp::sum);
    REQUIRE(variants(bits_of_gradients(toy)) == 1);
  }
}

TEST_CASE("no_sync ends when its body throws", "[ddp]") {
  const Toy toy = mlp_toy(5);
  DistributedDataParallel ddp(toy.parameters, {}, shared_group());
  try {
    const auto guard = ddp.no_sync();
    throw Error("from the body");
  } catch (const Error&) {
  }
  ddp.forward([&] { return sum(toy.forward(integers({2, 5}, 3))); }).backward();
  REQUIRE(ddp.statistics().step == 1);
  {
    const auto outer = ddp.no_sync();
    { const auto inner = ddp.no_sync(); }
    REQUIRE_FALSE(ddp.reducer().synchronising());
  }
  REQUIRE(ddp.reducer().synchronising());
}

TEST_CASE("ranks whose gradients arrive in different orders still agree", "[ddp]") {
  const int world = group().size(), rank = group().rank();
  // Each rank builds the branches in a different order. Backward visits the last one first.
  std::vector<Tensor> branch;
  NamedTensors parameters;
  for (std::uint32_t i = 0; i < 6; ++i) {
    branch.push_back(trained(integers({50 + i}, i)));
    parameters.emplace_back("p" + std::to_string(i), branch.back());
  }
  DistributedDataParallel ddp(
      parameters, {}, shared_group(),
      {.bucket_cap_mb = 0.0003, .first_bucket_mb = 0.0001, .op = comm::ReduceOp::sum});
  for (int step = 0; step < 4; ++step) {
    for (const Tensor& p : branch) p.set_grad({});
    ddp.forward([&] {
         Tensor loss;
         for (std::size_t i = 0; i < 6; ++i) {
           const std::size_t b = (i + static_cast<std::size_t>(rank + step)) % 6;
           const Tensor term = sum(mul(branch[b], static_cast<double>(rank + 1)));
           loss = loss.defined() ? add(loss, term) : term;
         }
         return loss;
       })
        .backward();
    const auto expected = static_cast<float>(world * (world + 1) / 2);
    for (std::size_t i = 0; i < 6; ++i)
      REQUIRE(branch[i].grad().to_vector<float>() == std::vector<float>(50 + i, expected));
  }
  REQUIRE(ddp.reducer().plan().buckets.size() >= 3);
  std::string layout;
  for (const auto& bucket : ddp.reducer().plan().buckets)
    for (const auto& slot : bucket.slots) layout += std::to_string(slot.parameter);
  REQUIRE(variants(layout) == 1);
}

TEST_CASE("one NaN on one rank is NaN on all, and only where it was", "[ddp]") {
  const Tensor w = trained(ones({5}));
  DistributedDataParallel ddp({{"w", w}}, {}, shared_group());
  std::vector<float> x(5, 1.0F);
  if (group().rank() == group().size() - 1) x[3] = std::numeric_limits<float>::quiet_NaN();
  ddp.forward([&] { return sum(mul(w, from_vector(x))); }).backward();
  const auto g = w.grad().to_vector<float>();
  for (std::size_t i = 0; i < 5; ++i) REQUIRE(std::isnan(g[i]) == (i == 3));
}

TEST_CASE("a parameter that joins the model after construction stays local", "[ddp]") {
  const int world = group().size(), rank = group().rank();
  const Tensor w = trained(ones({3})), late = trained(ones({3}));
  DistributedDataParallel ddp({{"w", w}}, {}, shared_group(), {.op = comm::ReduceOp::sum});
  ddp.forward([&] { return sum(mul(add(w, late), rank + 1.0)); }).backward();
  const auto all = static_cast<float>(world * (world + 1) / 2);
  REQUIRE(w.grad().to_vector<float>() == std::vector<float>(3, all));
  REQUIRE(late.grad().to_vector<float>() == std::vector<float>(3, static_cast<float>(rank + 1)));
}

TEST_CASE("a model that is wrapped twice gets the right gradients, and reduces them twice",
          "[ddp]") {
  const int world = group().size();
  const Tensor w = trained(ones({3}));
  const NamedTensors model{{"w", w}};
  DistributedDataParallel inner(model, {}, shared_group(), {.op = comm::ReduceOp::sum});
  DistributedDataParallel outer(model, {}, shared_group(), {.op = comm::ReduceOp::sum});
  outer.forward([&] { return inner.forward([&] { return sum(mul(w, group().rank() + 1.0)); }); })
      .backward();
  REQUIRE(w.grad().to_vector<float>() ==
          std::vector<float>(3, static_cast<float>(world * (world + 1) / 2)));
  REQUIRE(inner.statistics().step == 1);
  REQUIRE(outer.statistics().step == 1);
}
