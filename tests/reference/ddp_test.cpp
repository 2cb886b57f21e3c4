// Every rank's gradients must be the mean over the ranks' shards.
#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

namespace {

Tensor rows_of_rank(const Tensor& t, int rank, int world) {
  return t.slice(0, rank, t.size(0), world).contiguous();
}

// Returns the gradients of w1, b1 and w2 on one shard.
std::vector<Tensor> shard_gradients(const nlohmann::json& doc, int rank, int world) {
  std::vector<Tensor> p;
  const auto load = [&](const char* name) { return tensor(doc.at(name)).to(test::device()); };
  for (const char* name : {"w1", "b1", "w2"}) p.push_back(load(name).requires_grad_());
  const Tensor x = rows_of_rank(load("x"), rank, world), y = rows_of_rank(load("y"), rank, world);
  cross_entropy(linear(relu(linear(x, p[0], p[1])), p[2]), y).backward();
  return {p[0].grad(), p[1].grad(), p[2].grad()};
}

}  // namespace

TEST_CASE("averaged gradients of shards agree with PyTorch", "[on_device]") {
  if (!has_part("ddp.json")) return;
  const nlohmann::json doc = load("ddp.json");
  REQUIRE(doc.at("model") == "linear(w1,b1)-relu-linear(w2)-cross_entropy(mean)");
  REQUIRE(!doc.at("cases").empty());
  for (const auto& row : doc.at("cases")) {
    REQUIRE(row.at("shard") == "rows r::world");
    const int world = row.at("world").get<int>();
    std::vector<Tensor> sums = shard_gradients(doc, 0, world);
    for (int r = 1; r < world; ++r) {
      const std::vector<Tensor> more = shard_gradients(doc, r, world);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = add(sums[i], more[i]);
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      INFO("world " << world << ", gradient " << i);
      const Tensor want = tensor(row.at("grads").at(i));
      CHECK(difference(mul(sums[i], 1.0 / world), want, tolerance(want, 0)) == "");
    }
  }
}
