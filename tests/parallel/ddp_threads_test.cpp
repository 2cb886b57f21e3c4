// Runs ranks as threads, so that ThreadSanitizer sees both sides of every hand-off: backward fills
// a bucket, the communication threads reduce it, and the optimizer reads it.
#include <cmath>
#include <exception>

#include "runtime/comm/process_group.hpp"
#include "runtime/job/threads.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/toy_models.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kGlobalBatch = 12;
constexpr int kSteps = 3;

Toy train(std::uint32_t seed, const std::shared_ptr<comm::ProcessGroup>& group) {
  const Toy toy = mlp_toy(seed);
  DistributedDataParallel ddp(
      toy.parameters, {}, group,
      {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .op = comm::ReduceOp::sum});
  SGD optimizer(toy.trained(), {.lr = 1.0});
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const Tensor x = integers({kGlobalBatch, toy.inputs}, step, 1);
    const Tensor mine = rows_of_rank(x, group->rank(), group->size());
    optimizer.zero_grad();
    ddp.forward([&] { return sum(relu(toy.forward(mine))); }).backward();
    optimizer.step();
  }
  return toy;
}

}  // namespace

TEST_CASE("ranks that are threads train as one rank does", "[ddp]") {
  const Toy alone = train(5, comm::init_process_group(std::make_shared<comm::ThreadBootstrap>(
                                 std::make_shared<comm::ThreadRendezvous>(1), 0)));
  for (const auto& [name, p] : alone.parameters)
    for (const float v : p.to_vector<float>()) REQUIRE(std::abs(v) < 1e7F);  // whole, hence exact
  CHECK(alone.parameters[0].second.to_vector<float>() !=
        mlp_toy(5).parameters[0].second.to_vector<float>());
  const int world = GENERATE(2, 3, 4);
  std::vector<Toy> toys(static_cast<std::size_t>(world));
  const auto train_as = [&](int rank, std::shared_ptr<comm::Bootstrap> bootstrap) {
    // Different values on each rank, so construction must copy rank 0's.
    toys[static_cast<std::size_t>(rank)] =
        train(5 + static_cast<std::uint32_t>(rank), comm::init_process_group(std::move(bootstrap)));
  };
  const auto errors =
      comm::run_as_threads(std::make_shared<comm::ThreadRendezvous>(world), train_as);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (const Toy& toy : toys)
    for (std::size_t p = 0; p < toy.parameters.size(); ++p)
      CHECK(toy.parameters[p].second.to_vector<float>() ==
            alone.parameters[p].second.to_vector<float>());
}
