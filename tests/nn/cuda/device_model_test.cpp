#include <cmath>
#include <filesystem>
#include <unistd.h>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/nn/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

Device device() { return Device::cuda(device_count() - 1); }

struct Run {
  std::vector<double> losses;
  std::uint64_t hash = 0;
};
Run train(Device where, int steps, double dropout) {
  manual_seed(21);
  GPTOptions shape = small_gpt();
  shape.dropout = dropout;
  GPT gpt(shape);
  gpt.to(where);
  AdamW optimizer(gpt.parameters(), {.lr = 3e-3, .weight_decay = 1e-2});
  Generator g(5);
  Run out;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::int64_t> tokens;
    for (int i = 0; i < 3 * 9; ++i) tokens.push_back(randint(0, shape.vocabulary, g));
    const Tensor all = from_vector(tokens, {3, 9});
    optimizer.zero_grad();
    const Tensor logits = gpt(all.slice(1, 0, 8).contiguous().to(where));
    const Tensor loss = cross_entropy(reshape(logits, {-1, shape.vocabulary}),
                                      all.slice(1, 1, 9).contiguous().view({-1}).to(where));
    loss.backward();
    clip_grad_norm_(gpt.parameters(), 1.0);
    optimizer.step();
    out.losses.push_back(static_cast<double>(loss.item<float>()));
  }
  out.hash = hash_of(gpt);
  return out;
}

}  // namespace

TEST_CASE("training on a device is the CPU's to 1e-4, and its own bit for bit") {
  const Run cpu = train(Device::cpu(), 12, 0), first = train(device(), 12, 0);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i)
    CHECK(std::abs(first.losses[i] - cpu.losses[i]) <= 1e-4 * std::abs(cpu.losses[i]));
  const Run again = train(device(), 12, 0);
  CHECK(again.losses == first.losses);
  CHECK(again.hash == first.hash);
  const Run dropped = train(device(), 4, 0.2), dropped_again = train(device(), 4, 0.2);
  CHECK(dropped.hash == dropped_again.hash);
  CHECK(dropped.losses[3] != first.losses[3]);
}

TEST_CASE("20 bf16 steps of a GPT with a padded head: the device's losses are the CPU's to 0.5 %",
          "[classifier]") {
  constexpr std::int64_t kVocabulary = 517, kContext = 32, kBatch = 4;
  const auto losses_on = [&](Device where, std::int64_t multiple) {
    manual_seed(4);
    GPT gpt({.vocabulary = kVocabulary,
             .context = kContext,
             .layers = 2,
             .dim = 128,
             .heads = 2,
             .vocabulary_multiple = multiple,
             .gpt2_init = true});
    gpt.to(where);
    AdamW optimizer(gpt.parameters(), {.lr = 3e-3, .weight_decay = 1e-2});
    Generator g(5);
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      // The model can learn the pattern: each token is the previous token plus 1 or 2.
      std::vector<std::int64_t> tokens;
      for (std::int64_t b = 0; b < kBatch; ++b) {
        tokens.push_back(randint(0, kVocabulary, g));
        for (std::int64_t t = 0; t < kContext; ++t)
          tokens.push_back((tokens.back() + randint(1, 3, g)) % kVocabulary);
      }
      const Tensor all = from_vector(tokens, {kBatch, kContext + 1});
      const Tensor x = all.slice(1, 0, kContext).contiguous().to(where);
      const Tensor y = all.slice(1, 1, kContext + 1).contiguous().view({-1}).to(where);
      optimizer.zero_grad();
      Tensor loss;
      {
        const Autocast autocast(DType::bf16);
        loss = cross_entropy(reshape(gpt(x), {-1, kVocabulary}), y);
      }
      loss.backward();
      clip_grad_norm_(gpt.parameters(), 1.0);
      optimizer.step();
      losses.push_back(static_cast<double>(loss.item<float>()));
    }
    return losses;
  };
  const std::vector<double> cpu = losses_on(Device::cpu(), 1);
  CHECK(cpu.back() < cpu.front() - 0.1);  // it learns
  for (const std::int64_t multiple : {1, 128}) {
    const std::vector<double> got = losses_on(device(), multiple);
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      INFO("step " << i << ", vocabulary padded to a multiple of " << multiple);
      CHECK(std::abs(got[i] - cpu[i]) <= 5e-3 * cpu[i]);
    }
    CHECK(losses_on(device(), multiple) == got);
  }
}

TEST_CASE("a module moves in place: handles, tied weights, gradients and optimizers stay valid") {
  manual_seed(1);
  GPTOptions shape = small_gpt();
  shape.tied = true;
  GPT gpt(shape);
  CHECK(gpt.device() == Device::cpu());
  const std::uint64_t before = hash_of(gpt);
  const Tensor weight = gpt.tok.weight;
  SGD optimizer(gpt.parameters(), {.lr = 0.5});
  gpt.to(device());
  CHECK(gpt.device() == device());
  CHECK(weight.device() == device());
  CHECK(gpt.head->weight.is_same(gpt.tok.weight));
  CHECK(hash_of(gpt) == before);
  const Tensor tokens = zeros({1, 4}, {DType::i64, device()});
  sum(gpt(tokens)).backward();
  optimizer.step();
  CHECK(hash_of(gpt) != before);
  gpt.to(Device::cpu());
  CHECK(weight.grad().device() == Device::cpu());
  weight.move_to(device());
  CHECK_THROWS_WITH(gpt.device(), ContainsSubstring("the model is on several devices"));
  CHECK_THROWS_AS(gpt.to(Device::cuda(999)), UsageError);
}

TEST_CASE("an optimizer whose state was left behind says so") {
  const Tensor p = from_vector<float>({1, 2}).requires_grad_();
  Adam optimizer({p}, {.lr = 0.1});
  sum(p * p).backward();
  optimizer.step();
  const StateDict state = optimizer.state_dict();
  p.move_to(device());
  CHECK_THROWS_WITH(optimizer.step(), ContainsSubstring("optimizer: operands are on cuda"));
  optimizer.load_state_dict(state);
  optimizer.step();
  CHECK(optimizer.state_dict().at("state.0.exp_avg").device() == device());
}

TEST_CASE("a model of a device is saved, loaded and generates as on the CPU") {
  manual_seed(8);
  GPT gpt(small_gpt());
  Generator a(3), b(3);
  const auto text = generate(gpt, {1, 2}, {.tokens = 12, .context = 8}, a);
  gpt.to(device());
  CHECK(generate(gpt, {1, 2}, {.tokens = 12, .context = 8}, b) == text);
  const std::string path =
      std::filesystem::temp_directory_path() / ("ringsmith_" + std::to_string(::getpid()));
  save_safetensors(path, gpt.state_dict());
  const Checkpoint loaded = load_safetensors(path);
  std::filesystem::remove(path);
  manual_seed(9);
  GPT other(small_gpt());
  other.to(Device::cuda(0));
  CHECK(hash_of(other) != hash_of(gpt));
  other.load_state_dict(loaded.tensors);
  CHECK(hash_of(other) == hash_of(gpt));
  CHECK(other.device() == Device::cuda(0));
}

TEST_CASE("running statistics and the count of batches live on the model's device") {
  BatchNorm2d norm(2), reference(2);
  norm.to(device());
  const Tensor x = random_normal({4, 2, 3, 3});
  for (int i = 0; i < 3; ++i) {
    (void)norm(x.to(device()));
    (void)reference(x);
  }
  CHECK(norm.num_batches_tracked.device() == device());
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 3);
  const auto got = norm.running_var.to_vector<float>(),
             want = reference.running_var.to_vector<float>();
  for (std::size_t c = 0; c < 2; ++c) CHECK(got[c] == Approx(want[c]).epsilon(1e-6));
}
