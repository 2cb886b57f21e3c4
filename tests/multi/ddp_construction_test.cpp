// When DDP is constructed, every rank refuses unequal models and options with the same message, and
// parameters and buffers become rank 0's.
#include "runtime/parallel/broadcast_coalesced.hpp"
#include "tests/multi/ddp_support.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

std::string error_of(const NamedTensors& parameters, const NamedTensors& buffers = {},
                     const DdpOptions& options = {}) {
  try {
    const DistributedDataParallel ddp(parameters, buffers, shared_group(), options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("ranks with different models are refused, naming entry and ranks", "[ddp]") {
  const int world = group().size();
  if (world == 1) return;
  const bool odd = group().rank() == world - 1;  // the rank that differs
  const std::string odd_rank = "on rank " + std::to_string(world - 1);
  const Tensor w = trained(zeros({4, 5})), b = trained(zeros({4}));
  std::string error;
  SECTION("shape") {
    error = error_of({{"fc.weight", w}, {"fc.bias", odd ? trained(zeros({5})) : b}});
    CHECK_THAT(error, ContainsSubstring("entry 1 is parameter 'fc.bias' f32[4] on rank") &&
                          ContainsSubstring("but parameter 'fc.bias' f32[5] " + odd_rank));
  }
  SECTION("dtype") {
    error = error_of({{"fc.weight", odd ? trained(zeros({4, 5}, {DType::f64})) : w}});
    CHECK_THAT(error, ContainsSubstring("f32[4, 5] on rank") &&
                          ContainsSubstring("f64[4, 5] " + odd_rank));
  }
  SECTION("count") {
    NamedTensors p{{"fc.weight", w}, {"fc.bias", b}};
    if (odd) p.emplace_back("extra", trained(zeros({1})));
    error = error_of(p);
    CHECK_THAT(error, ContainsSubstring("parameter 'extra' f32[1] " + odd_rank) &&
                          ContainsSubstring("4 entries " + odd_rank));
  }
  SECTION("frozen on one rank only") {
    error = error_of({{"fc.weight", w}, {"fc.bias", odd ? zeros({4}) : b}});
    CHECK_THAT(error, ContainsSubstring("but frozen parameter 'fc.bias' f32[4] " + odd_rank));
  }
  SECTION("buffer") {
    error = error_of({{"w", w}}, {{"mean", zeros({odd ? 3 : 2})}});
    CHECK_THAT(error, ContainsSubstring("buffer 'mean' f32[3] " + odd_rank));
  }
  SECTION("options") {
    error = error_of({{"w", w}}, {}, {.bucket_cap_mb = odd ? 5.0 : 25.0});
    CHECK_THAT(error, ContainsSubstring("bucket_cap_mb=5"));
  }
  CHECK_THAT(error, ContainsSubstring("ranks do not hold the same model"));
  REQUIRE(variants(error) == 1);
}

TEST_CASE("nothing to train, or a senseless bucket size, is refused", "[ddp]") {
  const Tensor w = trained(zeros({4}));
  CHECK_THAT(error_of({{"frozen", zeros({4})}}),
             ContainsSubstring("no parameter requires a gradient"));
  CHECK_THAT(error_of({{"w", w}}, {}, {.bucket_cap_mb = 0}), ContainsSubstring("bucket_cap_mb"));
  CHECK_THAT(error_of({{"w", w}}, {}, {.first_bucket_mb = -1}),
             ContainsSubstring("first_bucket_mb"));
  CHECK_THAT(error_of({{"w", w}}, {}, {.op = comm::ReduceOp::max}), ContainsSubstring("averaged"));
}

TEST_CASE("construction gives every rank rank 0's parameters and buffers, of every dtype",
          "[ddp]") {
  const auto r = static_cast<std::uint32_t>(group().rank());
  const Toy toy = uneven_toy(r);
  const NamedTensors buffers{{"mean", integers({17}, r)},
                             {"count", full({1}, r, {DType::i64})},
                             {"mask", full({5}, r % 2, {DType::boolean})},
                             {"half", integers({9}, r).to(DType::f16)},
                             {"turned", integers({3, 4}, r).transpose(0, 1)}};
  const DistributedDataParallel ddp(toy.parameters, buffers, shared_group());
  REQUIRE(bits_of_parameters(toy) == bits_of_parameters(uneven_toy(0)));
  REQUIRE(buffers[0].second.to_vector<float>() == integers({17}, 0).to_vector<float>());
  REQUIRE(buffers[1].second.item<std::int64_t>() == 0);
  REQUIRE(buffers[2].second.to_vector<bool>() == std::vector<bool>(5, false));
  REQUIRE(bits_of(buffers[3].second) == bits_of(integers({9}, 0).to(DType::f16)));
  REQUIRE(bits_of(buffers[4].second) == bits_of(integers({3, 4}, 0).transpose(0, 1)));
}

TEST_CASE("a broadcast in pieces smaller than a tensor is whole, from any root", "[ddp]") {
  const int world = group().size();
  for (const std::size_t cap : {1, 7, 64, 1000, 1 << 20}) {
    const int root = static_cast<int>(cap) % world;
    const auto seed = static_cast<std::uint32_t>(group().rank());
    const std::vector<Tensor> tensors{integers({100}, seed), integers({0}, seed),
                                      integers({33}, seed).to(DType::f64)};
    broadcast_coalesced(group(), tensors, root, Bytes(cap));
    const auto from = static_cast<std::uint32_t>(root);
    REQUIRE(bits_of(tensors[0]) == bits_of(integers({100}, from)));
    REQUIRE(bits_of(tensors[2]) == bits_of(integers({33}, from).to(DType::f64)));
  }
}

TEST_CASE("buffers follow rank 0 in synchronising forwards only", "[ddp]") {
  const auto rank = static_cast<double>(group().rank());
  const Tensor w = trained(ones({3})), mean = full({2}, rank);
  DistributedDataParallel ddp({{"w", w}}, {{"mean", mean}}, shared_group());
  const auto forward = [&] { return sum(w); };
  const auto value = [&] { return mean.to_vector<float>()[0]; };
  REQUIRE(value() == 0.0F);

  mean.fill_(rank);
  {  // alone: no rank waits for another
    const NoGradGuard no_grad;
    if (group().rank() == 0) (void)ddp.forward(forward);
  }
  REQUIRE(value() == static_cast<float>(rank));
  {
    const auto guard = ddp.no_sync();
    ddp.forward(forward).backward();
  }
  REQUIRE(value() == static_cast<float>(rank));
  ddp.forward(forward).backward();
  REQUIRE(value() == 0.0F);

  mean.fill_(rank + 1);
  ddp.synchronise_buffers();
  REQUIRE(value() == 1.0F);
}

TEST_CASE("a buffer saved by a graph may be broadcast again while its value stays", "[ddp]") {
  const Tensor w = trained(ones({3})), mask = full({3}, 2.0);
  DistributedDataParallel ddp({{"w", w}}, {{"mask", mask}}, shared_group());
  const auto forward = [&] { return sum(mul(w, mask)); };
  const Tensor a = ddp.forward(forward), b = ddp.forward(forward);
  add(a, b).backward();
  REQUIRE(w.grad().to_vector<float>() == std::vector<float>(3, 4.0F));
}

TEST_CASE("broadcast_buffers off leaves each rank its own", "[ddp]") {
  const auto rank = static_cast<double>(group().rank());
  const Tensor w = trained(ones({3})), mean = full({2}, 0.0);
  DistributedDataParallel ddp({{"w", w}}, {{"mean", mean}}, shared_group(),
                              {.broadcast_buffers = false});
  mean.fill_(rank);
  ddp.forward([&] { return sum(w); }).backward();
  REQUIRE(mean.to_vector<float>()[0] == static_cast<float>(rank));
}
