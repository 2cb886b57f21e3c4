// Parameters have no gradient on some or all ranks, in the first step or later. DDP must not hang
// or compute a wrong average: every rank gets the same error in the same step.
#include "tests/multi/ddp_support.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

struct Branches {
  Tensor a = trained(integers({300}, 1)), b = trained(integers({200}, 2));
  Tensor c = trained(integers({100}, 3));
  DistributedDataParallel ddp;

  explicit Branches(bool find_unused)
      : ddp({{"net.a", a}, {"net.b", b}, {"net.c", c}}, {}, shared_group(),
            {.bucket_cap_mb = 0.0001,
             .first_bucket_mb = 0.0001,
             .find_unused_parameters = find_unused,
             .op = comm::ReduceOp::sum}) {}

  // Rank r adds r + 1 to the gradient of each parameter it uses. DDP sums gradients.
  void step(bool use_a, bool use_b, bool use_c) {
    ddp.forward([&] {
         const double factor = group().rank() + 1;
         Tensor loss;
         for (const auto& [p, used] : {std::pair(a, use_a), {b, use_b}, {c, use_c}}) {
           if (!used) continue;
           const Tensor term = sum(mul(p, factor));
           loss = loss.defined() ? add(loss, term) : term;
         }
         return loss;
       })
        .backward();
  }
  void zero_grad() const {
    for (const Tensor& p : {a, b, c}) p.set_grad({});
  }
};

std::string failing_step(Branches& m, bool a, bool b, bool c) {
  try {
    m.step(a, b, c);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

float sum_of_ranks() {  // 1 + 2 + ... + W
  return static_cast<float>(group().size() * (group().size() + 1) / 2);
}

}  // namespace

TEST_CASE("a parameter unused on every rank is named, in the first step and in a later one",
          "[ddp]") {
  Branches m(false);
  const bool first = GENERATE(true, false);
  if (!first) m.step(true, true, true);
  m.zero_grad();
  const std::string error = failing_step(m, true, false, true);
  CHECK_THAT(error, ContainsSubstring(first ? "backward pass 1: " : "backward pass 2: ") &&
                        ContainsSubstring("1 parameter has no gradient: 'net.b' (on ") &&
                        ContainsSubstring("find_unused_parameters"));
  if (group().size() > 1) CHECK_THAT(error, ContainsSubstring("every rank"));
  REQUIRE(variants(error) == 1);
}

TEST_CASE("a parameter unused on one rank is named with that rank, on all ranks", "[ddp]") {
  const int world = group().size();
  if (world == 1) return;
  Branches m(false);
  const bool first = GENERATE(true, false);
  if (!first) m.step(true, true, true);
  m.zero_grad();
  const int lacking = world - 1;
  const bool here = group().rank() == lacking;
  const std::string error = failing_step(m, true, !here, true);
  CHECK_THAT(error, ContainsSubstring("'net.b' (on rank " + std::to_string(lacking) + ")"));
  REQUIRE(variants(error) == 1);
  // All ranks got the error, so the group and the wrapper still work.
  m.zero_grad();
  m.step(true, true, true);
  REQUIRE(m.b.grad().to_vector<float>() == std::vector<float>(200, sum_of_ranks()));
}

TEST_CASE("every rank lacks another parameter: one error that names them all", "[ddp]") {
  if (group().size() < 3) return;
  Branches m(false);
  const int rank = group().rank();
  const std::string error = failing_step(m, rank != 0, rank != 1, rank != 2);
  CHECK_THAT(error,
             ContainsSubstring("'net.a' (on rank 0), 'net.b' (on rank 1), 'net.c' (on rank 2)"));
  REQUIRE(variants(error) == 1);
}

TEST_CASE("unused only in the first step: the rebuilt buckets hold every parameter", "[ddp]") {
  Branches m(false);
  REQUIRE(failing_step(m, true, false, false) != "no error");
  for (int step = 0; step < 2; ++step) {
    m.zero_grad();
    m.step(true, true, true);
    for (const Tensor& p : {m.a, m.b, m.c})
      for (const float g : p.grad().to_vector<float>()) REQUIRE(g == sum_of_ranks());
  }
  REQUIRE(m.ddp.reducer().rebuilt());
}

TEST_CASE("find_unused: used elsewhere counts zeros for this rank, unused by all is untouched",
          "[ddp]") {
  const int world = group().size(), rank = group().rank();
  Branches m(true);
  for (int step = 0; step < 3; ++step) {
    m.zero_grad();
    const bool last = rank == world - 1;
    m.step(true, last, false);
    for (const float g : m.a.grad().to_vector<float>()) REQUIRE(g == sum_of_ranks());
    for (const float g : m.b.grad().to_vector<float>()) REQUIRE(g == static_cast<float>(world));
    REQUIRE_FALSE(m.c.grad().defined());
  }
  // An unused parameter's old gradient keeps its bits. 0.1 is not a multiple of fl(1/3).
  m.step(true, true, true);
  m.c.grad().fill_(0.1);
  m.step(true, true, false);
  REQUIRE(m.c.grad().to_vector<float>() == std::vector<float>(100, 0.1F));
}
