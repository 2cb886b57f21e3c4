// Activation checkpointing must give the same numbers as plain training, in the same order, with
// less memory.
#include "runtime/autograd/checkpoint.hpp"

#include <string>
#include <vector>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/tensor/storage.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"

using namespace ringsmith;
using test::on_device;

namespace {

// Keeps all activations, the input of each block, or the input of each pair of blocks.
enum class Way { plain, checkpointed, nested };

Tensor random(const Shape& sizes, std::uint64_t seed) {
  Generator g(seed);
  return on_device(randn(sizes, g));
}

struct Net {
  Tensor w1 = random({6, 6}, 1).requires_grad_(), b1 = random({6}, 2).requires_grad_();
  Tensor w2 = random({6, 6}, 3).requires_grad_();

  [[nodiscard]] Tensor block(const Tensor& x) const {
    return gelu(dropout(linear(x, w1, b1), 0.5, true)) * linear(tanh(x), w2);
  }
  // Runs blocks that share their weights, with a dropout before and after each pair.
  [[nodiscard]] Tensor run(Tensor x, Way way) const {
    const auto one = [this](const Tensor& in) { return block(in); };
    const auto two = [one](const Tensor& in) { return checkpoint(one, checkpoint(one, in)); };
    for (int i = 0; i < 2; ++i) {
      x = dropout(x, 0.2, true);
      if (way == Way::nested)
        x = checkpoint(two, x);
      else
        for (int k = 0; k < 2; ++k) x = way == Way::plain ? one(x) : checkpoint(one, x);
      x = dropout(x, 0.2, true);
    }
    return x;
  }
};

// Returns everything that a training step can observe, as text: values, gradients, their order, and
// the next random numbers.
std::string trace_of(Way way) {
  manual_seed(7);
  const Net net;
  const Tensor x = random({5, 6}, 4).requires_grad_();
  std::string out;
  const auto show = [&out](const Tensor& t) {
    for (const float v : t.to_vector<float>()) out += std::to_string(v) + " ";
    out += "\n";
  };
  for (const auto& [name, leaf] : {std::pair{"w1", net.w1}, {"b1", net.b1}, {"w2", net.w2}})
    register_post_accumulate_grad_hook(leaf, [&out, n = name](const Tensor&) { out += n; });
  const Tensor y = net.run(x, way);
  show(y);
  out += std::to_string(reachable_leaves({y}).size());
  show(dropout(ones_like(x), 0.5, true));  // drawn between forward and backward
  sum(y).backward();
  show(x.grad());
  for (const Tensor& w : {net.w1, net.b1, net.w2}) show(w.grad());
  show(dropout(ones_like(x), 0.5, true));  // backward must not change the generator's state
  return out;
}

AllocatorStats stats() {
  return test::device().is_cpu() ? host_allocator::stats()
                                 : device_allocator::stats(test::device());
}
void reset_peak() {
  test::device().is_cpu() ? host_allocator::reset_peak()
                          : device_allocator::reset_peak(test::device());
}

}  // namespace

TEST_CASE("a checkpointed function gives the same bits, hooks and random numbers", "[on_device]") {
  const std::string plain = trace_of(Way::plain);
  CHECK(plain.size() > 500);
  CHECK(trace_of(Way::checkpointed) == plain);
  CHECK(trace_of(Way::nested) == plain);
}

TEST_CASE("checkpoints keep a block's input, and the activations of one block at a time",
          "[on_device]") {
  // Every block saves the results of its tanh calls, kDepth tensors of kSize bytes.
  constexpr std::int64_t kElements = 1 << 16;
  constexpr std::size_t kSize = kElements * sizeof(float), kBlocks = 12, kDepth = 6;
  const auto block = [](const Tensor& in) {
    Tensor x = in;
    for (std::size_t i = 0; i < kDepth; ++i) x = tanh(x);
    return x;
  };
  const auto peak_of = [&](bool with) {
    const Tensor x = on_device(full({kElements}, 0.5)).requires_grad_();
    const std::size_t before = stats().current.value;
    reset_peak();
    Tensor y = x;
    for (std::size_t b = 0; b < kBlocks; ++b) y = with ? checkpoint(block, y) : block(y);
    const std::size_t held = stats().current.value - before;
    y.backward(ones_like(y));
    // Kept after forward: all results, or one per block (the first block's input is x).
    CHECK(held >= (with ? kBlocks : kBlocks * kDepth) * kSize);
    CHECK(held < ((with ? kBlocks : kBlocks * kDepth) + 1) * kSize);
    return stats().peak.value - before;
  };
  // Backward additionally holds at most y's seed, the current gradient, the next gradient, and
  // .grad.
  constexpr std::size_t kGradients = 4;
  const std::size_t plain = peak_of(false), with = peak_of(true);
  CHECK(plain >= kBlocks * kDepth * kSize);
  CHECK(plain <= (kBlocks * kDepth + kGradients) * kSize);
  CHECK(with >= (kBlocks + kDepth) * kSize);
  CHECK(with <= (kBlocks + kDepth + kGradients) * kSize);
}

TEST_CASE("one checkpoint of the whole model moves its peak to backward, and lowers nothing",
          "[on_device]") {
  constexpr std::int64_t kElements = 1 << 16;
  constexpr std::size_t kSize = kElements * sizeof(float), kDepth = 24;
  const auto model = [](const Tensor& in) {
    Tensor x = in;
    for (std::size_t i = 0; i < kDepth; ++i) x = tanh(x);
    return x;
  };
  const auto peak_of = [&](bool with) {
    const Tensor x = on_device(full({kElements}, 0.5)).requires_grad_();
    const std::size_t before = stats().current.value;
    reset_peak();
    const Tensor y = with ? checkpoint(model, x) : model(x);
    y.backward(ones_like(y));
    return stats().peak.value - before;
  };
  const std::size_t plain = peak_of(false), with = peak_of(true);
  CHECK(plain >= kDepth * kSize);
  CHECK(with >= plain);  // y itself exists twice
  CHECK(with <= plain + kSize);
}

TEST_CASE("without recording a checkpoint is the function itself") {
  const NoGradGuard no_grad;
  int calls = 0;
  const Tensor y = checkpoint(
      [&](const Tensor& x) {
        ++calls;
        return add(x, 1.0);
      },
      ones({2}));
  CHECK(calls == 1);
  CHECK(y.to_vector<float>() == std::vector<float>{2, 2});
}

TEST_CASE("a checkpoint takes several inputs, of any kind, and gives any result") {
  const Tensor table = full({3, 2}, 2.0).requires_grad_(),
               index = from_vector<std::int64_t>({2, 0});
  const Tensor scale = full({2}, 3.0).requires_grad_();
  const auto [y, twice] = checkpoint(
      [](const Tensor& t, const Tensor& i, const Tensor& s) {
        const Tensor rows = embedding(t, i) * s;
        return std::pair(rows, rows + rows);
      },
      table, index, scale);
  sum(y + twice).backward();
  CHECK(table.grad().to_vector<float>() == std::vector<float>{9, 9, 0, 0, 9, 9});
  CHECK(scale.grad().to_vector<float>() == std::vector<float>{12, 12});
}

TEST_CASE("retain_graph and second backwards are what they are without a checkpoint") {
  const Tensor x = full({2}, 3.0).requires_grad_();
  const Tensor y = sum(checkpoint([](const Tensor& t) { return mul(t, t); }, x));
  backward({y}, {}, true);
  backward({y});
  CHECK(x.grad().to_vector<float>() == std::vector<float>{12, 12});
  CHECK_THROWS_WITH(backward({y}), ContainsSubstring("second time"));
}

TEST_CASE("a function that does something else the second time is an error") {
  for (const bool another_shape : {false, true}) {
    int calls = 0;
    const Tensor x = full({4}, 3.0).requires_grad_();
    const Tensor y = sum(checkpoint(
        [&, another_shape](const Tensor& t) {
          ++calls;
          if (calls == 1) return tanh(t);
          return another_shape ? tanh(t.view({2, 2})) : tanh(tanh(t));
        },
        x));
    CHECK_THROWS_WITH(y.backward(),
                      ContainsSubstring("the same function run again in backward saved") &&
                          ContainsSubstring("must do the same each time"));
    CHECK(calls == 2);
  }
}

TEST_CASE("what a checkpoint will read again must not be written to before") {
  const Tensor x = full({4}, 3.0).requires_grad_(), h = mul(x, 2);
  const Tensor y = sum(checkpoint([](const Tensor& t) { return tanh(t); }, h));
  h.detach().fill_(1);
  CHECK_THROWS_WITH(y.backward(), ContainsSubstring("checkpoint: a tensor of shape [4]") &&
                                      ContainsSubstring("modified in place"));
  // A parameter must not be modified either, although the block does not receive it as an argument.
  const Tensor w = full({4}, 2.0).requires_grad_();
  const Tensor z = sum(checkpoint([&](const Tensor& t) { return mul(t, w); }, x));
  w.detach().fill_(5);
  CHECK_THROWS_WITH(z.backward(), ContainsSubstring("modified in place"));
}

TEST_CASE("an exception of the second run leaves backward() and the generator as they were") {
  int calls = 0;
  const Tensor x = full({4}, 3.0).requires_grad_();
  const Tensor y = sum(checkpoint(
      [&](const Tensor& t) {
        if (++calls == 2) throw Error("not again");
        return dropout(tanh(t), 0.5, true);
      },
      x));
  const std::string before = default_generator().state();
  CHECK_THROWS_WITH(y.backward(), ContainsSubstring("not again"));
  CHECK(default_generator().state() == before);
  CHECK_FALSE(x.grad().defined());
}
