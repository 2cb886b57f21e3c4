// Compares gradients with slopes in f64, and fast f32 gradients with f64 gradients. Also tests
// errors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/gradcheck.hpp"

using namespace ringsmith;
using test::gradcheck;
using test::on_device;
using test::spread_values;
using Inputs = std::vector<Tensor>;

namespace {

Tensor indices(const std::vector<std::int64_t>& values, const Shape& sizes) {
  return test::on_device(from_vector(values, sizes));
}

struct Case {
  std::string name;
  std::function<Tensor(const Inputs&)> f;
  Inputs inputs;
};

std::vector<Case> cases() {
  const auto v = [](const Shape& s, unsigned seed) { return spread_values(s, seed); };
  const Tensor target = indices({2, 0, -100, 1, 2}, {5});
  std::vector<Case> c = {
      {"matmul", [](const Inputs& i) { return matmul(i[0], i[1]); }, {v({3, 4}, 1), v({4, 5}, 2)}},
      {"matmul, batched",
       [](const Inputs& i) { return matmul(i[0], i[1]); },
       {v({2, 3, 1, 4}, 1), v({2, 3, 4, 3}, 2)}},
      {"matmul, one matrix for a batch",
       [](const Inputs& i) { return matmul(i[0], i[1]); },
       {v({3, 2, 4}, 1), v({4, 3}, 2)}},
      {"matmul, a batch for one matrix",
       [](const Inputs& i) { return matmul(i[0], i[1]); },
       {v({2, 4}, 1), v({3, 4, 2}, 2)}},
      {"matmul, both broadcast",
       [](const Inputs& i) { return matmul(i[0], i[1]); },
       {v({2, 1, 3, 2}, 1), v({3, 2, 2}, 2)}},
      {"matmul, transposed views",
       [](const Inputs& i) { return matmul(i[0], i[1]); },
       {v({4, 3}, 1).transpose(0, 1), v({5, 4}, 2).transpose(0, 1)}},
      {"linear",
       [](const Inputs& i) { return linear(i[0], i[1], i[2]); },
       {v({2, 3, 4}, 1), v({5, 4}, 2), v({5}, 3)}},
      {"linear, no bias",
       [](const Inputs& i) { return linear(i[0], i[1]); },
       {v({3, 4}, 1), v({2, 4}, 2)}},
      {"linear, one vector",
       [](const Inputs& i) { return linear(i[0], i[1], i[2]); },
       {v({4}, 1), v({2, 4}, 2), v({2}, 3)}},
      {"linear, x is also the weight",
       [](const Inputs& i) { return linear(i[0], i[0]); },
       {v({3, 4}, 1)}},
      {"layer_norm",
       [](const Inputs& i) { return layer_norm(i[0], i[1], i[2]); },
       {v({2, 3, 5}, 1), v({5}, 2), v({5}, 3)}},
      {"add_layer_norm",
       [](const Inputs& i) {
         const auto [s, y] = add_layer_norm(i[0], i[1], i[2], i[3]);
         return s * y + s;
       },
       {v({3, 5}, 1), v({3, 5}, 4), v({5}, 2), v({5}, 3)}},
      {"add_layer_norm, its norm alone",
       [](const Inputs& i) { return add_layer_norm(i[0], i[1], i[2], {}).normed; },
       {v({3, 5}, 1), v({3, 5}, 4), v({5}, 2)}},
      {"add_layer_norm, its sum alone",
       [](const Inputs& i) { return add_layer_norm(i[0], i[1], {}, {}).sum; },
       {v({3, 5}, 1), v({3, 5}, 4)}},
      {"add_layer_norm, one row for all",
       [](const Inputs& i) {
         const auto [s, y] = add_layer_norm(i[0], i[1], {}, {});
         return s * y;
       },
       {v({3, 5}, 1), v({1, 5}, 4)}},
      {"layer_norm, plain",
       [](const Inputs& i) { return layer_norm(i[0], {}, {}); },
       {v({3, 7}, 1)}},
      {"embedding",
       [](const Inputs& i) {
         return embedding(i[0], indices({3, 0, 3, 1}, {2, 2}).to(i[0].device()));
       },
       {v({4, 3}, 1)}},
      {"mse_loss",
       [](const Inputs& i) { return mse_loss(i[0], i[1]); },
       {v({3, 4}, 1), v({3, 4}, 2)}},
      {"mse_loss, none",
       [](const Inputs& i) { return mse_loss(i[0], i[1], Reduction::none); },
       {v({3, 4}, 1), v({3, 4}, 2)}},
      {"mse_loss, sum",
       [](const Inputs& i) { return mse_loss(i[0], i[1], Reduction::sum); },
       {v({5}, 1), v({5}, 2)}},
  };
  for (const int dim : {0, 1, -1}) {
    c.push_back({"softmax " + std::to_string(dim),
                 [dim](const Inputs& i) { return softmax(i[0], dim); },
                 {v({2, 3, 4}, 1)}});
    c.push_back({"log_softmax " + std::to_string(dim),
                 [dim](const Inputs& i) { return log_softmax(i[0], dim); },
                 {v({2, 3, 4}, 1)}});
  }
  for (const Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    const std::string which = " reduction " + std::to_string(static_cast<int>(r));
    c.push_back({"nll_loss" + which,
                 [=](const Inputs& i) { return nll_loss(i[0], target.to(i[0].device()), r); },
                 {v({5, 3}, 1)}});
    for (const double smoothing : {0.0, 0.2})
      c.push_back({"cross_entropy" + which,
                   [=](const Inputs& i) {
                     return cross_entropy(i[0], target.to(i[0].device()), r, -100, smoothing);
                   },
                   {v({5, 3}, 1)}});
  }
  for (const bool causal : {false, true}) {
    for (const std::int64_t tokens : {1, 3, 5}) {
      const Shape s = {2, 2, tokens, 3};
      c.push_back({"attention",
                   [causal](const Inputs& i) { return attention(i[0], i[1], i[2], causal); },
                   {v(s, 1), v(s, 2), v(s, 3)}});
      c.push_back({"attention_qkv",
                   [causal](const Inputs& i) { return attention_qkv(i[0], 2, causal); },
                   {v({2, tokens, 12}, 1)}});
    }
    c.push_back({"attention, permuted views",
                 [causal](const Inputs& i) { return attention(i[0], i[0], i[1], causal); },
                 {v({1, 3, 2, 2}, 1).transpose(1, 2), v({1, 2, 2, 3}, 2).transpose(2, 3)}});
  }
  return c;
}

Inputs run(const Case& c, DType dtype) {
  Inputs inputs, results;
  for (const Tensor& t : c.inputs) inputs.push_back(on_device(t.to(dtype)).requires_grad_());
  const Tensor y = c.f(inputs);
  y.backward(on_device(spread_values(y.sizes(), 77).to(dtype)));
  results.push_back(y.detach());
  for (const Tensor& t : inputs) results.push_back(t.grad());
  return results;
}

}  // namespace

TEST_CASE("gradients of the model functions are slopes") {
  for (const Case& c : cases()) {
    INFO(c.name);
    CHECK(gradcheck(c.f, c.inputs) == "");
  }
}

TEST_CASE("f32 results and gradients agree with f64, fast kernels and oracle") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle})
    for (const Case& c : cases()) {
      INFO(c.name << (mode == kernels::Mode::fast ? ", fast" : ", oracle"));
      const Inputs want = run(c, DType::f64);
      kernels::set_mode(mode);
      const Inputs got = run(c, DType::f32);
      kernels::set_mode(kernels::Mode::fast);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const auto a = got[i].to_vector<float>();
        const auto b = want[i].to_vector<double>();
        REQUIRE(a.size() == b.size());
        double most = 0, largest = 1;
        for (std::size_t j = 0; j < a.size(); ++j) {
          const double d = std::abs(static_cast<double>(a[j]) - b[j]);
          const double off = std::isfinite(d) ? d : 1e9;
          most = std::max(most, off);  // with std::fmax, g++ 12 for arm64 crashes here
          largest = std::max(largest, std::abs(b[j]));
        }
        CHECK(most / largest < 2e-6);
      }
    }
}

TEST_CASE("linear's bias gradient is ready before its weight's, as in PyTorch") {
  const Tensor x = on_device(spread_values({3, 4}, 1)), w = on_device(spread_values({2, 4}, 2)),
               b = on_device(spread_values({2}, 3));
  w.requires_grad_();
  b.requires_grad_();
  std::string order;
  register_post_accumulate_grad_hook(w, [&](const Tensor&) { order += "w"; });
  register_post_accumulate_grad_hook(b, [&](const Tensor&) { order += "b"; });
  mse_loss(linear(x, w, b), on_device(spread_values({3, 2}, 4))).backward();
  CHECK(order == "bw");
}

TEST_CASE("linear and embedding accumulate into an existing gradient and fill a gradient target") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    kernels::set_mode(mode);
    const auto given = [](const std::vector<float>& values, const Shape& sizes) {
      return on_device(from_vector(values, sizes));
    };
    const Tensor x = given({1, 2, 3, 4}, {2, 2});
    const Tensor w = given({1, 0, 0, 1, 1, 1}, {3, 2}).requires_grad_();
    const Tensor b = given({0, 0, 0}, {3}).requires_grad_();
    const Tensor table = given({1, 2, 3, 4}, {2, 2}).requires_grad_();
    const Tensor target = on_device(full({3, 2}, 55));  // must be overwritten, not added to
    set_grad_target(w, target);
    const auto step = [&] {
      linear(x, w, b).backward(on_device(ones({2, 3})));
      embedding(table, indices({1, 1, 0}, {3})).backward(on_device(ones({3, 2})));
    };
    step();
    CHECK(w.grad().is_same(target));
    CHECK(w.grad().to_vector<float>() == std::vector<float>{4, 6, 4, 6, 4, 6});
    CHECK(b.grad().to_vector<float>() == std::vector<float>{2, 2, 2});
    CHECK(table.grad().to_vector<float>() == std::vector<float>{1, 1, 2, 2});
    step();
    CHECK(target.to_vector<float>() == std::vector<float>{8, 12, 8, 12, 8, 12});
    CHECK(b.grad().to_vector<float>() == std::vector<float>{4, 4, 4});
    CHECK(table.grad().to_vector<float>() == std::vector<float>{2, 2, 4, 4});
    kernels::set_mode(kernels::Mode::fast);
  }
}

TEST_CASE("a weight used by two linear layers gets the sum of both gradients") {
  const Tensor w = on_device(from_vector<float>({1, 2, 3, 4}, {2, 2})).requires_grad_();
  const Tensor x = on_device(from_vector<float>({1, 1}, {1, 2}));
  linear(linear(x, w), w).backward(on_device(ones({1, 2})));
  // y = W (W x): dW = 1 (W x)^T + (W^T 1) x^T with W x = (3, 7), W^T 1 = (4, 6).
  CHECK(w.grad().to_vector<float>() == std::vector<float>{3 + 4, 7 + 4, 3 + 6, 7 + 6});
}

TEST_CASE("the mean cross entropy of a batch that is ignored altogether is NaN, its sum 0") {
  const Tensor x = on_device(spread_values({3, 4}, 1).to(DType::f32));
  const Tensor target = indices({-100, -100, -100}, {3});
  CHECK(std::isnan(cross_entropy(x, target).item<float>()));
  CHECK(cross_entropy(x, target, Reduction::sum).item<float>() == 0.0F);
  CHECK(std::isnan(nll_loss(x, target).item<float>()));
}

TEST_CASE("empty batches pass through") {
  const auto empty = [](const Shape& sizes) {
    return Tensor::empty(sizes, {DType::f32, test::device()});
  };
  const Tensor x = empty({0, 4}).requires_grad_();
  const Tensor w = on_device(spread_values({3, 4}, 1).to(DType::f32)).requires_grad_();
  const Tensor y = linear(x, w);
  CHECK(y.sizes() == Shape{0, 3});
  y.backward(empty({0, 3}));
  CHECK(w.grad().to_vector<float>() == std::vector<float>(12, 0.0F));
  CHECK(softmax(x, 1).sizes() == Shape{0, 4});
  CHECK(layer_norm(x, {}, {}).sizes() == Shape{0, 4});
  CHECK(attention_qkv(empty({0, 5, 12}), 2, true).sizes() == Shape{0, 5, 4});
  CHECK(attention_qkv(empty({2, 0, 12}), 2, true).sizes() == Shape{2, 0, 4});
  CHECK(matmul(empty({2, 0}), empty({0, 3})).to_vector<float>() == std::vector<float>(6, 0.0F));
}

TEST_CASE("wrong inputs are errors that name the function and the shapes") {
  const Tensor a = zeros({2, 3}), b = zeros({4, 5});
  const Tensor labels = indices({0, 9}, {2}).cpu();
  CHECK_THROWS_WITH(matmul(a, b), ContainsSubstring("matmul: [2, 3] and [4, 5]"));
  CHECK_THROWS_WITH(linear(a, b), ContainsSubstring("linear: x [2, 3] and weight [4, 5]"));
  CHECK_THROWS_WITH(linear(a, zeros({5, 3}), zeros({4})), ContainsSubstring("bias [4]"));
  CHECK_THROWS_WITH(softmax(a, 2), ContainsSubstring("softmax: dimension 2"));
  // A device reports the error when the host next waits.
  const auto both = [](const Tensor&) { synchronize(test::device()); };
  CHECK_THROWS_WITH(both(cross_entropy(a, labels)), ContainsSubstring("target 9 of row 1"));
  CHECK_THROWS_WITH(cross_entropy(a, zeros({2})), ContainsSubstring("target (n) of i64"));
  CHECK_THROWS_WITH(cross_entropy(a, labels, Reduction::mean, -100, 1.5),
                    ContainsSubstring("label_smoothing"));
  CHECK_THROWS_WITH(mse_loss(a, b), ContainsSubstring("mse_loss: x [2, 3] and y [4, 5]"));
  CHECK_THROWS_WITH(layer_norm(a, zeros({2}), {}), ContainsSubstring("weight [2]"));
  CHECK_THROWS_WITH(both(embedding(a, labels)), ContainsSubstring("index 9 at position 1"));
  CHECK_THROWS_WITH(embedding(a, a), ContainsSubstring("index of i64"));
  CHECK_THROWS_WITH(attention(a, a, a, true), ContainsSubstring("attention: q, k and v"));
  CHECK_THROWS_WITH(attention_qkv(zeros({1, 2, 10}), 2, true), ContainsSubstring("attention_qkv"));
  CHECK_THROWS_WITH(softmax(labels, 0), ContainsSubstring("i64"));
}
