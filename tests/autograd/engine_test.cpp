// Functions are recorded by hand, so that only the engine is tested.
#include "runtime/autograd/engine.hpp"

#include <string>

#include "runtime/autograd/node.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/tensor/raw.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

Tensor leaf(const std::vector<float>& values) {
  Tensor t = from_vector(values);
  t.requires_grad_();
  return t;
}

Tensor times(const Tensor& a, const Tensor& b) {
  Tensor y = raw::binary(raw::Binary::mul, a, b, "times");
  record("TimesBackward", {a, b}, y, {a, b}, [](const Saved& saved, const Tensor& g) {
    return std::vector<Tensor>{raw::binary(raw::Binary::mul, g, saved[1], "times"),
                               raw::binary(raw::Binary::mul, g, saved[0], "times")};
  });
  return y;
}

Tensor plus(const Tensor& a, const Tensor& b) {
  Tensor y = raw::binary(raw::Binary::add, a, b, "plus");
  record("PlusBackward", {a, b}, y, {}, [](const Saved&, const Tensor& g) {
    return std::vector<Tensor>{g, g};
  });
  return y;
}

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("a diamond sums both paths, and a leaf used twice in one node counts twice", "[engine]") {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = times(x, x);              // 2x
  plus(times(y, x), y).backward(ones({3}));  // x^3 + x^2 -> 3x^2 + 2x
  REQUIRE(values(x.grad()) == std::vector<float>{5, 16, 33});
}

TEST_CASE("a second backward adds in place to the .grad that is there", "[engine]") {
  const Tensor x = leaf({1, 2, 3});
  times(x, x).backward(ones({3}));
  const Tensor first = x.grad();
  const float* where = first.data<float>();
  times(x, x).backward(ones({3}));
  REQUIRE(x.grad().data<float>() == where);
  REQUIRE(values(first) == std::vector<float>{4, 8, 12});
}

TEST_CASE("a gradient that is still held elsewhere is not taken over but copied", "[engine]") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4}), seed = from_vector<float>({5, 6});
  plus(a, b).backward(seed);
  a.grad().fill_(0);
  REQUIRE(values(b.grad()) == std::vector<float>{5, 6});
  REQUIRE(values(seed) == std::vector<float>{5, 6});
}

TEST_CASE("frozen and unused leaves get no gradient", "[engine]") {
  const Tensor x = leaf({1, 2}), unused = leaf({1, 2}), frozen = from_vector<float>({3, 4});
  const Tensor y = times(x, frozen);
  REQUIRE(reachable_leaves({y}).size() == 1);
  REQUIRE(reachable_leaves({y})[0].is_same(x));
  y.backward(ones({2}));
  REQUIRE(values(x.grad()) == std::vector<float>{3, 4});
  REQUIRE_FALSE(frozen.grad().defined());
  REQUIRE_FALSE(unused.grad().defined());
}

TEST_CASE("leaf hooks fire once, after all contributions, in the order of the edges", "[engine]") {
  const Tensor x = leaf({1}), bias = leaf({2}), weight = leaf({3}), tied = leaf({4});
  std::string order;
  const auto note = [&order](const char* name) {
    return [&order, name](const Tensor& t) {
      order += name + std::to_string(static_cast<int>(t.grad().item<float>())) + " ";
    };
  };
  register_post_accumulate_grad_hook(x, note("x"));
  register_post_accumulate_grad_hook(bias, note("b"));
  register_post_accumulate_grad_hook(weight, note("w"));
  const HookHandle gone = register_post_accumulate_grad_hook(weight, note("gone"));
  register_post_accumulate_grad_hook(tied, note("t"));
  remove_hook(weight, gone);
  // One node with edges x, bias, weight, as in linear. `tied` is also used before and after it.
  const Tensor h = times(x, tied);
  Tensor y = ones({1});
  record("LinearBackward", {h, bias, weight}, y, {}, [](const Saved&, const Tensor& g) {
    return std::vector<Tensor>{g, raw::scalar(raw::Scalar::mul, g, 2, "g"),
                               raw::scalar(raw::Scalar::mul, g, 3, "g")};
  });
  times(y, tied).backward();
  // bias: 2*4, weight: 3*4, then x: tied*4 = 16, tied: y + 4*x = 5
  REQUIRE(order == "b8 w12 x16 t5 ");
}

TEST_CASE("a hook whose turn is last runs after hooks that are registered later", "[engine]") {
  const Tensor x = leaf({1});
  std::string order;
  const auto note = [&](const char* name, HookTurn turn) {
    return register_post_accumulate_grad_hook(
        x, [&order, name](const Tensor&) { order += name; }, turn);
  };
  note("a ", HookTurn::in_order);
  const HookHandle last = note("last ", HookTurn::last);
  note("b ", HookTurn::in_order);
  note("very last ", HookTurn::last);
  note("c ", HookTurn::in_order);
  times(x, x).backward();
  REQUIRE(order == "a b c last very last ");
  order.clear();
  remove_hook(x, last);
  times(x, x).backward();
  REQUIRE(order == "a b c very last ");
}

TEST_CASE("callbacks run after the whole graph and before backward returns", "[engine]") {
  const Tensor x = leaf({1}), w = leaf({2});
  std::string order;
  register_post_accumulate_grad_hook(w, [&](const Tensor&) {
    queue_backward_callback([&] { order += "callback "; });
    order += "w ";
  });
  register_post_accumulate_grad_hook(x, [&](const Tensor&) { order += "x "; });
  times(times(x, x), w).backward();
  REQUIRE(order == "w x callback ");
  REQUIRE_THROWS_WITH(queue_backward_callback([] {}), ContainsSubstring("during backward"));
}

TEST_CASE("an exception in a hook leaves backward() and the engine usable", "[engine]") {
  const Tensor x = leaf({1});
  const HookHandle h =
      register_post_accumulate_grad_hook(x, [](const Tensor&) { throw Error("hook failed"); });
  REQUIRE_THROWS_WITH(times(x, x).backward(), ContainsSubstring("hook failed"));
  REQUIRE_THROWS_AS(queue_backward_callback([] {}), UsageError);
  remove_hook(x, h);
  x.set_grad({});
  times(x, x).backward();
  REQUIRE(x.grad().item<float>() == 2);
}

TEST_CASE("the first gradient goes into the target, later ones are added there", "[engine]") {
  const Tensor x = leaf({1, 2, 3}), bucket = full({5}, -1);
  set_grad_target(x, bucket.slice(0, 1, 4));
  for (const float k : {1.0f, 2.0f}) {
    times(x, x).backward(ones({3}));
    REQUIRE(x.grad().data<float>() == bucket.data<float>() + 1);
    REQUIRE(values(bucket) == std::vector<float>{-1, 2 * k, 4 * k, 6 * k, -1});
  }
  x.set_grad({});  // drops the old content, like zero_grad(set_to_none)
  times(x, x).backward(ones({3}));
  REQUIRE(values(bucket) == std::vector<float>{-1, 2, 4, 6, -1});
  REQUIRE_THROWS_AS(set_grad_target(x, bucket), UsageError);
}

TEST_CASE("a function that writes to the destination itself is not added twice", "[engine]") {
  const Tensor w = leaf({1, 2}), bucket = zeros({2});
  const auto direct = [](const Tensor& x) {
    Tensor y = x.clone();
    record("DirectBackward", {x}, y, {}, [](const Saved& saved, const Tensor& g) {
      const GradDestination to = grad_destination(saved.edge(0));
      if (!to.tensor.defined()) return std::vector<Tensor>{g};
      if (to.accumulate)
        raw::add_into(to.tensor, g);
      else
        to.tensor.copy_(g);
      return std::vector<Tensor>{to.tensor};
    });
    return y;
  };
  set_grad_target(w, bucket);
  direct(w).backward(from_vector<float>({5, 6}));
  REQUIRE(values(bucket) == std::vector<float>{5, 6});
  direct(w).backward(from_vector<float>({5, 6}));
  REQUIRE(values(bucket) == std::vector<float>{10, 12});
  // If a leaf gets two contributions in a backward, neither may be written directly to the target.
  w.set_grad({});
  plus(direct(w), direct(w)).backward(from_vector<float>({5, 6}));
  REQUIRE(values(bucket) == std::vector<float>{10, 12});
  REQUIRE_FALSE(grad_destination({}).tensor.defined());
}

TEST_CASE("a second backward through the same graph is an error that says so", "[engine]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = times(x, x);
  backward({y}, {ones({2})}, true);
  y.backward(ones({2}));
  REQUIRE(values(x.grad()) == std::vector<float>{4, 8});
  REQUIRE_THROWS_WITH(y.backward(ones({2})),
                      ContainsSubstring("second time") && ContainsSubstring("TimesBackward"));
}

TEST_CASE("a saved tensor that was changed in place is detected", "[engine]") {
  const Tensor x = leaf({1, 2});
  const Tensor h = times(x, x);
  const Tensor y = times(h, h);
  h.select(0, 0).fill_(7);  // through a view, because the version belongs to the storage
  REQUIRE_THROWS_WITH(y.backward(ones({2})), ContainsSubstring("modified in place"));
}

TEST_CASE("wrong roots and gradients are named", "[engine]") {
  const Tensor x = leaf({1, 2});
  REQUIRE_THROWS_WITH(times(x, x).backward(), ContainsSubstring("one element"));
  REQUIRE_THROWS_WITH(times(x, x).backward(ones({3})), ContainsSubstring("[3]"));
  REQUIRE_THROWS_WITH(ones({1}).backward(), ContainsSubstring("does not require"));
  REQUIRE_THROWS_AS(arange(3).requires_grad_(), UsageError);
}

TEST_CASE("no graph is recorded under NoGradGuard", "[engine]") {
  const Tensor x = leaf({1, 2});
  const NoGradGuard guard;
  const Tensor y = times(x, x);
  REQUIRE_FALSE(y.requires_grad());
  REQUIRE(y.is_leaf());
}

TEST_CASE("a chain of 100,000 nodes runs and dies without deep recursion", "[engine]") {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = plus(y, x);
  SECTION("after backward") {
    y.backward();
    REQUIRE(x.grad().item<float>() == 100001);
  }
  SECTION("without backward") { y = Tensor(); }
}

TEST_CASE("hooks fire for a leaf that only gets 'no gradient'", "[engine]") {
  const Tensor x = leaf({1});
  int fired = 0;
  register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++fired; });
  Tensor y = ones({1});
  record("NothingBackward", {x}, y, {},
         [](const Saved&, const Tensor&) { return std::vector<Tensor>{Tensor()}; });
  y.backward();
  REQUIRE(fired == 1);
  REQUIRE_FALSE(x.grad().defined());
}
