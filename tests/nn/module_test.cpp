#include "runtime/nn/module.hpp"

#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/nn/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

using Names = std::vector<std::string>;

Names names_of(const NamedTensors& named) {
  Names names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

// Two linear layers, which may share their weight, and a norm.
class Toy : public Module {
 public:
  explicit Toy(bool tied) : a(3, 3), b(3, 3, false), norm(3) {
    register_module("a", a);
    register_module("b", b);
    register_module("norm", norm);
    if (tied) b.weight = a.weight;
  }
  Tensor forward(const Tensor& x) override { return b(relu(a(x))); }
  Linear a, b;
  BatchNorm2d norm;
};

}  // namespace

TEST_CASE("parameters come in tree order, and a shared one only once") {
  const Toy toy(false);
  CHECK(names_of(toy.named_parameters()) ==
        Names{"a.weight", "a.bias", "b.weight", "norm.weight", "norm.bias"});
  CHECK(names_of(toy.named_buffers()) ==
        Names{"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"});
  CHECK(parameter_count(toy) == 9 + 3 + 9 + 3 + 3);
  const Toy tied(true);
  CHECK(names_of(tied.named_parameters()) ==
        Names{"a.weight", "a.bias", "norm.weight", "norm.bias"});
  CHECK(parameter_count(tied) == 9 + 3 + 3 + 3);
  CHECK(tied.state_dict().size() == 8);  // the shared weight is saved under both names
  for (const Tensor& p : tied.parameters()) CHECK(p.requires_grad());
  for (const Tensor& b : tied.buffers()) CHECK_FALSE(b.requires_grad());
}

namespace {

// Has "w" (a parameter), "m" (a buffer), "a" and "b.c"; a test registers more.
class Registry : public Module {
 public:
  Registry() {
    register_parameter("w", w, ones({2}));
    register_buffer("m", m, ones({2}));
    register_module("a", a);
    register_module("b.c", c);
  }
  Tensor forward(const Tensor& x) override { return x; }
  void add(const std::string& kind, const std::string& name) {
    if (kind == "parameter") register_parameter(name, other, ones({2}));
    if (kind == "buffer") register_buffer(name, other, ones({2}));
    if (kind == "module") register_module(name, d);
  }
  void hold(const std::string& name, Module& child) { register_module(name, child); }
  void reuse(const std::string& name) { register_buffer(name, w, zeros({2})); }
  Tensor w, m, other;
  Linear a{2, 2}, c{2, 2}, d{2, 2};
};

}  // namespace

TEST_CASE("a name that is taken, empty, or that could become another's is refused") {
  for (const std::string kind : {"parameter", "buffer", "module"})
    for (const std::string name : {"w", "m", "a", "b.c", "", ".", "x.", ".x", "x..y", "a.weight",
                                   "w.x", "a.b.c", "b", "b.c.weight"}) {
      CAPTURE(kind, name);
      Registry r;
      const std::size_t before = r.state_dict().size();
      CHECK_THROWS_AS(r.add(kind, name), UsageError);
      CHECK_THROWS_WITH(r.add(kind, name),
                        ContainsSubstring("register_" + kind + "(\"" + name + "\"): "));
      CHECK(r.state_dict().size() == before);
      CHECK_FALSE(r.other.defined());
    }
  Registry r;
  r.add("parameter", "wx");
  r.add("module", "b.d");
  CHECK(r.state_dict().size() == 2 + 2 * 3 + 1);
  CHECK(r.state_dict().size() == r.named_parameters().size() + r.named_buffers().size());
}

TEST_CASE("a member is registered once, and no module holds itself; sharing a module is legal") {
  Registry r;
  CHECK_THROWS_WITH(r.reuse("x"), ContainsSubstring("'x' and 'w'"));
  CHECK(r.w.to_vector<float>() == std::vector<float>{1, 1});
  Registry inner;
  r.hold("inner", inner);
  CHECK_THROWS_WITH(r.hold("self", r), ContainsSubstring("contain itself"));
  CHECK_THROWS_WITH(inner.hold("outer", r), ContainsSubstring("contain itself"));
  r.hold("again", inner.a);
  CHECK(names_of(r.named_parameters()).size() == 2 * 5);
  CHECK(r.state_dict().count("again.weight") == 1);
}

TEST_CASE("the models have PyTorch's parameter counts") {
  CHECK(parameter_count(MLP({784, 1024, 1024, 10})) == 1'863'690);
  CHECK(parameter_count(GPT({.vocabulary = 65, .context = 128})) == 826'368);
  CHECK(parameter_count(GPT({.vocabulary = 65, .context = 128, .tied = true})) ==
        826'368 - 65 * 128);
}

TEST_CASE("after the same seed, layers start with PyTorch's weights bit for bit") {
  manual_seed(12);
  CHECK(hash_of(MLP({784, 100, 10})) == 0xa4b21b8c7ce904fULL);
  manual_seed(13);
  CHECK(hash_of(Conv2d(6, 4, {3, 5}, {.groups = 2})) == 0xa5557bf38c5474cULL);
  manual_seed(11);
  CHECK(hash_of(GPT(small_gpt())) == 0x3dce192cca1da94dULL);
}

TEST_CASE("state goes from one module into another, and misfits are all named") {
  Toy from(false);
  Toy to(false);
  CHECK(hash_of(from) != hash_of(to));
  const Tensor kept = to.a.weight;
  to.load_state_dict(from.state_dict());
  CHECK(hash_of(from) == hash_of(to));
  CHECK(kept.is_same(to.a.weight));  // values are copied in
  CHECK(kept.data<float>() != from.a.weight.data<float>());

  StateDict state = from.state_dict();
  state.erase("a.bias");
  state["b.weight"] = Tensor::empty({2, 3});
  state["c"] = Tensor::empty({1});
  const std::uint64_t before = hash_of(to);
  CHECK_THROWS_WITH(to.load_state_dict(state),
                    ContainsSubstring("'a.bias' is missing") &&
                        ContainsSubstring("'b.weight' is [2, 3], the model has [3, 3]") &&
                        ContainsSubstring("'c' is unknown"));
  CHECK(hash_of(to) == before);
}

TEST_CASE("train, eval and apply reach every module of the tree") {
  GPT gpt(small_gpt());
  int modules = 0;
  int training = 0;
  const auto count = [&](Module& m) {
    ++modules;
    training += m.training() ? 1 : 0;
  };
  gpt.apply(count);
  CHECK(training == modules);
  CHECK(modules == 1 + 2 + 2 * 9 + 3);  // a block: itself, 2 norms, attention + 2, up, down, drop
  {
    const EvalGuard eval(gpt);
    training = 0;
    gpt.apply(count);
    CHECK(training == 0);
  }
  CHECK(gpt.blocks[1]->up.training());
}

TEST_CASE("a tied weight gets both gradients, and a step changes both uses") {
  manual_seed(1);
  Toy toy(true);
  const Tensor x = random_normal({5, 3});
  sum(toy(x)).backward();
  // d/dW of sum(W relu(W x + b)) for one element.
  float* w = toy.a.weight.data<float>();
  const float analytic = toy.a.weight.grad().data<float>()[4];
  const NoGradGuard no_grad;
  const auto value = [&](float delta) {
    const float old = w[4];
    w[4] = old + delta;
    const double y = static_cast<double>(sum(toy(x)).item<float>());
    w[4] = old;
    return y;
  };
  CHECK(static_cast<double>(analytic) ==
        Approx((value(1e-2F) - value(-1e-2F)) / 2e-2).epsilon(1e-2));
  SGD(toy.parameters(), {.lr = 0.1}).step();
  CHECK(toy.b.weight.data<float>() == toy.a.weight.data<float>());
}

TEST_CASE("a frozen parameter gets no gradient and stays as it is") {
  manual_seed(2);
  Toy toy(false);
  toy.a.weight.requires_grad_(false);
  const std::vector<float> before = toy.a.weight.to_vector<float>();
  sum(toy(random_normal({5, 3}))).backward();
  CHECK_FALSE(toy.a.weight.grad().defined());
  CHECK(toy.a.bias.grad().defined());
  SGD(toy.parameters(), {.lr = 0.1}).step();
  CHECK(toy.a.weight.to_vector<float>() == before);
  toy.zero_grad();
  CHECK_FALSE(toy.a.bias.grad().defined());
}

TEST_CASE("dropout masks are PyTorch's, scaled in training and absent in evaluation") {
  Dropout drop(0.3);
  const Tensor ones = Tensor::empty({40});
  ones.fill_(1);
  manual_seed(14);
  std::string mask;
  for (const float v : drop(ones).to_vector<float>()) {
    mask += v != 0 ? '1' : '0';
    CHECK((v == 0 || v == 1.0F / 0.7F || v == static_cast<float>(1 / 0.7)));
  }
  CHECK(mask == "1111110011101111010001111101011101111100");
  manual_seed(14);
  const std::vector<float> again = drop(ones).to_vector<float>();
  manual_seed(14);
  CHECK(drop(ones).to_vector<float>() == again);
  CHECK(drop(ones).to_vector<float>() != again);
  drop.eval();
  CHECK(drop(ones).to_vector<float>() == ones.to_vector<float>());
  CHECK_THROWS_AS(Dropout(1.0), UsageError);
  CHECK_THROWS_AS(Dropout(-0.1), UsageError);
}

TEST_CASE("layers refuse sizes that make no sense") {
  CHECK_THROWS_AS(Linear(0, 3), UsageError);
  CHECK_THROWS_AS(Embedding(3, -1), UsageError);
  CHECK_THROWS_AS(MLP({3}), UsageError);
  CHECK_THROWS_WITH(Conv2d(6, 4, {3, 3}, {.groups = 4}), ContainsSubstring("groups"));
  CHECK_THROWS_WITH(GPT({.dim = 30, .heads = 4}), ContainsSubstring("4 heads"));
  CHECK_THROWS_AS(GPT({.layers = 0}), UsageError);
}
