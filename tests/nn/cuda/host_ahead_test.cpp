// Within a step, the host must not wait for a device, neither for the check of indices and targets,
// nor for the loss. Errors that a device finds are reported later.
#include <cmath>
#include <string>
#include <thread>

#include "runtime/autograd/functions.hpp"
#include "runtime/device/findings.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

const Device kDevice = Device::cuda(0);

Tensor tokens(const std::vector<std::int64_t>& values, const Shape& sizes) {
  return from_vector(values, sizes).to(kDevice);
}

}  // namespace

TEST_CASE("a step of training is queued while the device has not begun with it", "[cuda]") {
  manual_seed(1);
  GPT gpt({.vocabulary = 11, .context = 4, .layers = 1, .dim = 8, .heads = 2});
  gpt.to(kDevice);
  SGD sgd(gpt.parameters(), {.lr = 0.1});
  const Tensor in = tokens({1, 2, 3, 10, 0, 2, 4, 1}, {2, 4});
  const Tensor out = tokens({2, 3, 10, 0, 2, 4, 1, 5}, {8});
  const auto step = [&] {
    sgd.zero_grad();
    Tensor loss = cross_entropy(reshape(gpt(in), {8, 11}), out);
    Fetch fetch(data_of(loss), kDevice, Bytes(sizeof(float)));
    loss.backward();
    sgd.step();
    return fetch;
  };
  const auto value = [](const Fetch& fetch) {
    return *reinterpret_cast<const float*>(fetch.wait());
  };
  const float first = value(step());  // allocates, so a driver may wait here
  value(step());
  // If this thread waits for the device after all, the gate opens after 10 s, and `late` is set.
  bool late = false, done = false;
  std::mutex mutex;
  std::condition_variable changed;
  {
    Gate gate(Stream::current(kDevice));
    std::thread impatience([&] {
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, std::chrono::seconds(10), [&] { return done; })) return;
      late = true;
      gate.open();
    });
    const Fetch fetch = step();
    {
      const std::scoped_lock lock(mutex);
      done = true;
    }
    changed.notify_all();
    impatience.join();
    gate.open();
    CHECK(!late);
    CHECK(value(fetch) < first);
  }
}

TEST_CASE("a bad index is an error at the next look: when a loss is read, or a step later",
          "[cuda]") {
  const Tensor weight = zeros({3, 4}).to(kDevice);
  const Tensor bad = tokens({0, 7, 1}, {3}), good = tokens({0, 2, 1}, {3});
  const std::string want = "embedding: index 7 at position 1 is outside [0, 3)";
  SECTION("when something is read") {
    const Tensor out = embedding(weight, bad);
    CHECK_THROWS_WITH(sum(out).item<float>(), want);
    CHECK(std::isnan(sum(out).item<float>()));
  }
  SECTION("at the next check") {
    (void)embedding(weight, bad);
    Stream::current(kDevice).synchronize();
    CHECK_THROWS_WITH(embedding(weight, good), want);
    CHECK(sum(embedding(weight, good)).item<float>() == 0.0F);
  }
  SECTION("by another thread, if the one that checked has ended") {
    std::thread([&] {
      (void)embedding(weight, bad);
      Stream::current(kDevice).synchronize();
    }).join();
    CHECK_THROWS_WITH(findings::look(), want);
    CHECK_NOTHROW(findings::look());
  }
  SECTION("a target: its loss is NaN, other rows have their gradients") {
    const Tensor logits = zeros({2, 3}).to(kDevice);
    logits.requires_grad_();
    const Tensor loss = cross_entropy(logits, tokens({1, 3}, {2}));
    loss.backward();
    CHECK_THROWS_WITH(loss.item<float>(), ContainsSubstring("target 3 of row 1 is outside [0, 3)"));
    CHECK(std::isnan(loss.item<float>()));
  }
  SECTION("an ignored target is none") {
    const Tensor loss = cross_entropy(zeros({2, 3}).to(kDevice), tokens({1, -100}, {2}));
    CHECK(std::abs(loss.item<float>() - std::log(3.0F)) < 1e-6F);
  }
}
