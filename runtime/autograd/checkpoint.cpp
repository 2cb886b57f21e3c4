#include "runtime/autograd/checkpoint.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/autograd/autocast.hpp"
#include "runtime/base/rng.hpp"

namespace ringsmith {

namespace {

class RandomState {
 public:
  explicit RandomState(const std::vector<Tensor>& inputs) : host_(default_generator()) {
    for (const Tensor& t : inputs)
      if (t.device().is_cuda()) note(t.device().index);
  }
  // The current state, for the same devices as `other`.
  [[nodiscard]] static RandomState now(const RandomState& other) {
    RandomState state({});
    for (const auto& [device, place] : other.devices_) state.note(device);
    return state;
  }
  void restore() const {
    default_generator() = host_;
    for (const auto& [device, place] : devices_) set_device_counters(device, place);
  }

 private:
  void note(int device) { devices_.emplace_back(device, take_device_counters(device, 0)); }

  Generator host_;
  std::vector<std::pair<int, CounterRange>> devices_;
};

class RandomScope {
 public:
  explicit RandomScope(const RandomState& then) : now_(RandomState::now(then)) { then.restore(); }
  ~RandomScope() { now_.restore(); }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  RandomState now_;
};

// Collects the second run's saved tensors. The graph of that run is never used.
class Collector : public SavedTensorKeeper {
 public:
  std::size_t keep(const Tensor& t) override {
    tensors.push_back(t);
    return tensors.size() - 1;
  }
  const Tensor& fetch(std::size_t number) override { return tensors.at(number); }
  void release(std::size_t /*number*/) override {}

  std::vector<Tensor> tensors;
};

// Records the shapes of the tensors that forward saves. The first fetch() in backward runs the
// function again, which saves all of them in the same order.
class Recomputation : public SavedTensorKeeper {
 public:
  Recomputation(std::function<void(const std::vector<Tensor>&)> again,
                const std::vector<Tensor>& inputs, Draws draws)
      : again_(std::move(again)), inputs_(inputs.begin(), inputs.end()) {
    if (draws == Draws::yes) random_.emplace(inputs);
    for (const Tensor& t : inputs) needs_grad_.push_back(t.requires_grad());
  }

  std::size_t keep(const Tensor& t) override {
    shapes_.push_back(t.sizes());
    return shapes_.size() - 1;
  }
  const Tensor& fetch(std::size_t number) override {
    if (tensors_.empty()) run_again();
    return tensors_.at(number);
  }
  void release(std::size_t number) override {
    if (!tensors_.empty()) tensors_.at(number) = Tensor();
  }

 private:
  void run_again() {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(inputs_[i].get("checkpoint").detach());
      if (needs_grad_[i]) inputs.back().requires_grad_();
    }
    const auto collector = std::make_shared<Collector>();
    {
      std::optional<RandomScope> random;
      if (random_) random.emplace(*random_);
      const EnableGradGuard grad;
      const Autocast autocast(autocast_);
      const KeeperScope scope(collector);
      again_(inputs);
    }
    const std::vector<Tensor>& found = collector->tensors;
    if (!std::ranges::equal(found, shapes_, {}, &Tensor::sizes))
      throw Error("checkpoint: forward saved " + std::to_string(shapes_.size()) +
                  " tensors, but the same function run again in backward saved " +
                  std::to_string(found.size()) +
                  ", or other shapes: it must do the same each time");
    tensors_ = std::move(collector->tensors);
  }

  std::function<void(const std::vector<Tensor>&)> again_;
  std::vector<SavedTensor> inputs_;  // an enclosing checkpoint may keep these
  std::vector<bool> needs_grad_;
  std::optional<RandomState> random_;
  AutocastState autocast_ = autocast_state();  // forward's; backward runs outside of its guard
  std::vector<Shape> shapes_;                  // of the tensors that forward saved
  std::vector<Tensor> tensors_;                // the same tensors, recomputed
};

}  // namespace

namespace detail {

std::shared_ptr<SavedTensorKeeper> recompute_by(
    std::function<void(const std::vector<Tensor>&)> again, const std::vector<Tensor>& inputs,
    Draws draws) {
  return std::make_shared<Recomputation>(std::move(again), inputs, draws);
}

}  // namespace detail

}  // namespace ringsmith
