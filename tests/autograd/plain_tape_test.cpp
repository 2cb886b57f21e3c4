// Compares the plain tape with the engine bit for bit: both use the same kernels, and add the
// gradients of a value in the same order.
#include "runtime/autograd/plain_tape.hpp"

#include <bit>
#include <random>
#include <string>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;

namespace {

// The engine behind the tape's interface.
struct Engine {
  using Value = Tensor;
  static Tensor leaf(const Tensor& value) { return value.clone().requires_grad_(); }
  static Tensor add(const Tensor& a, const Tensor& b) { return ringsmith::add(a, b); }
  static Tensor mul(const Tensor& a, const Tensor& b) { return ringsmith::mul(a, b); }
  static Tensor relu(const Tensor& x) { return ringsmith::relu(x); }
  static Tensor matmul(const Tensor& a, const Tensor& b) { return ringsmith::matmul(a, b); }
  static Tensor sum(const Tensor& x) { return ringsmith::sum(x); }
  static void backward(const Tensor& loss) { loss.backward(); }
  static Tensor value(const Tensor& x) { return x.detach(); }
  static Tensor grad(const Tensor& leaf) { return leaf.grad(); }
};

std::vector<std::uint32_t> bits_of(const Tensor& t) {
  std::vector<std::uint32_t> bits;
  if (!t.defined()) return bits;
  for (const float v : t.to_vector<float>()) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

// Returns the loss and the inputs' gradients. An input without a gradient has an undefined tensor.
template <class Tape, class Expression>
std::vector<Tensor> gradients(const std::vector<Tensor>& inputs, const Expression& expression) {
  Tape tape;
  std::vector<typename Tape::Value> leaves;
  for (const Tensor& input : inputs) leaves.push_back(tape.leaf(input));
  const auto loss = expression(tape, leaves);
  tape.backward(loss);
  std::vector<Tensor> out{tape.value(loss)};
  for (const auto& leaf : leaves) out.push_back(tape.grad(leaf));
  return out;
}

template <class Expression>
void check_equal(const std::vector<Tensor>& inputs, const Expression& expression) {
  for (const auto mode : {kernels::Mode::oracle, kernels::Mode::fast}) {
    const test::KernelMode kernels(mode);
    const auto plain = gradients<PlainTape>(inputs, expression);
    const auto engine = gradients<Engine>(inputs, expression);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      INFO((i == 0 ? "the loss" : "the gradient of input " + std::to_string(i - 1))
           << (mode == kernels::Mode::fast ? ", fast kernels" : ", oracle"));
      REQUIRE(plain[i].defined() == engine[i].defined());
      if (plain[i].defined()) REQUIRE(plain[i].sizes() == engine[i].sizes());
      REQUIRE(bits_of(plain[i]) == bits_of(engine[i]));
    }
  }
}

Tensor random(const Shape& sizes, unsigned seed) {
  Generator g(seed);
  return randn(sizes, g);
}

}  // namespace

TEST_CASE("plain tape: the gradients of lesson 03's formula", "[plain_tape]") {
  PlainTape tape;
  const auto w = tape.leaf(scalar(3)), b = tape.leaf(scalar(1)), x = tape.leaf(scalar(2));
  const auto h = tape.add(tape.mul(w, x), b);
  const auto loss = tape.mul(tape.mul(h, h), w);
  const auto unused = tape.mul(h, h);
  tape.backward(loss);
  CHECK(tape.value(loss).item<float>() == 147);
  CHECK(tape.grad(w).item<float>() == 133);
  CHECK(tape.grad(b).item<float>() == 42);
  CHECK(tape.grad(x).item<float>() == 126);
  CHECK_FALSE(tape.grad(unused).defined());
}

TEST_CASE("plain tape: chains, diamonds and values used again have the engine's bits",
          "[plain_tape]") {
  const std::vector<Tensor> three{random({3, 5}, 1), random({3, 5}, 2), random({5}, 3)};
  SECTION("a chain") {
    check_equal(three, [](auto& t, const auto& in) {
      auto y = in[0];
      for (int i = 0; i < 6; ++i) y = t.relu(t.add(t.mul(y, in[1]), in[2]));
      return t.sum(y);
    });
  }
  SECTION("a diamond") {
    check_equal(three, [](auto& t, const auto& in) {
      const auto top = t.mul(in[0], in[2]);
      return t.sum(t.add(t.mul(t.relu(top), in[1]), t.mul(top, top)));
    });
  }
  SECTION("one value in both operands, and in many operations") {
    check_equal(three, [](auto& t, const auto& in) {
      auto y = t.add(in[0], in[0]);
      for (int i = 0; i < 5; ++i) y = t.mul(t.add(y, in[0]), in[0]);
      return t.sum(t.mul(y, y));
    });
  }
  SECTION("an input that the loss does not depend on, and a result that it does not use") {
    check_equal(three, [](auto& t, const auto& in) {
      (void)t.sum(t.mul(in[1], in[0]));
      return t.sum(t.mul(in[0], in[2]));
    });
  }
  SECTION("a leaf that is the loss") {
    check_equal({scalar(2)}, [](auto&, const auto& in) { return in[0]; });
  }
  SECTION("zeros, negative zeros and the bend of relu") {
    const Tensor edge = from_vector<float>({0.0F, -0.0F, -1.0F, 1.0F, 1e-40F});
    check_equal({edge, random({5}, 4)}, [](auto& t, const auto& in) {
      return t.sum(t.mul(t.relu(t.mul(in[0], in[1])), t.relu(in[0])));
    });
  }
}

TEST_CASE("plain tape: products have the engine's bits", "[plain_tape]") {
  // Uses sizes around the tiles of the fast kernel.
  const auto [m, k, n] = GENERATE(table<int, int, int>(
      {{1, 1, 1}, {2, 3, 4}, {5, 1, 7}, {1, 17, 3}, {8, 16, 16}, {9, 33, 17}, {0, 3, 2}}));
  const std::vector<Tensor> inputs{random({m, k}, 1), random({k, n}, 2), random({n}, 3),
                                   random({n, k}, 4)};
  check_equal(inputs, [](auto& t, const auto& in) {
    const auto y = t.relu(t.add(t.matmul(in[0], in[1]), in[2]));
    return t.sum(t.mul(t.matmul(y, in[3]), in[0]));
  });
}

TEST_CASE("plain tape: random graphs have the engine's bits", "[plain_tape]") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::vector<Tensor> inputs;
    for (unsigned i = 0; i < 4; ++i)
      inputs.push_back(raw::scalar(raw::Scalar::mul, random({4, 4}, 10 * seed + i), 0.5, "test"));
    check_equal(inputs, [seed](auto& t, const auto& in) {
      std::mt19937 choice(seed);
      auto values = in;
      for (int i = 0; i < 20; ++i) {
        const auto a = values[choice() % values.size()], b = values[choice() % values.size()];
        switch (choice() % 4) {
          case 0:
            values.push_back(t.add(a, b));
            break;
          case 1:
            values.push_back(t.mul(a, b));
            break;
          case 2:
            values.push_back(t.relu(a));
            break;
          default:
            values.push_back(t.matmul(a, b));
        }
      }
      return t.sum(t.add(values[values.size() - 1], values[values.size() - 2]));
    });
  }
}

namespace {

// Trains an MLP with one hidden layer on exclusive or. Returns its parameters and all losses.
template <class Tape>
std::pair<std::vector<Tensor>, std::vector<float>> train_xor() {
  const Tensor x = from_vector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor minus_y = from_vector<float>({0, -1, -1, 0}, {4, 1});
  std::vector<Tensor> parameters{random({2, 8}, 1), random({8}, 2), random({8, 1}, 3), zeros({1})};
  std::vector<float> losses;
  for (int step = 0; step < 300; ++step) {
    Tape tape;
    std::vector<typename Tape::Value> p;
    for (const Tensor& parameter : parameters) p.push_back(tape.leaf(parameter));
    const auto h = tape.relu(tape.add(tape.matmul(tape.leaf(x), p[0]), p[1]));
    const auto error = tape.add(tape.add(tape.matmul(h, p[2]), p[3]), tape.leaf(minus_y));
    const auto loss = tape.sum(tape.mul(error, error));
    tape.backward(loss);
    losses.push_back(tape.value(loss).template item<float>());
    for (std::size_t i = 0; i < parameters.size(); ++i)
      raw::add_into(parameters[i],
                    raw::scalar(raw::Scalar::mul, tape.grad(p[i]), -0.02, "learning rate"));
  }
  return {parameters, losses};
}

}  // namespace

TEST_CASE("plain tape: an MLP learns exclusive or, with the engine's bits at every step",
          "[plain_tape]") {
  const auto [parameters, losses] = train_xor<PlainTape>();
  const auto [same_parameters, same_losses] = train_xor<Engine>();
  CHECK(losses.front() > 1);
  CHECK(losses.back() < 0.01);
  CHECK(losses == same_losses);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    CHECK(bits_of(parameters[i]) == bits_of(same_parameters[i]));
}

TEST_CASE("plain tape: wrong uses are refused", "[plain_tape]") {
  PlainTape tape;
  const auto x = tape.leaf(ones({2, 3}));
  CHECK_THROWS_WITH(tape.matmul(x, x), ContainsSubstring("[2, 3] and [2, 3] do not fit"));
  CHECK_THROWS_AS(tape.add(x, tape.leaf(ones({4}))), UsageError);
  CHECK_THROWS_WITH(tape.backward(x), ContainsSubstring("one element, got [2, 3]"));
  const auto loss = tape.sum(x);
  tape.backward(loss);
  CHECK_THROWS_WITH(tape.backward(loss), ContainsSubstring("use a new tape"));
  CHECK(tape.grad(x).to_vector<float>() == std::vector<float>(6, 1.0F));
}
