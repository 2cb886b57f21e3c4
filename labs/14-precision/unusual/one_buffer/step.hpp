// Unusual and correct: gradients are divided before the sum; their buffer has one more element, in
// which each rank reports a non-finite gradient; the replica counts the live NoSyncs; an epoch is
// one loop over the batches.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "labs/kit/cluster/cluster.hpp"
#include "rounding.hpp"
#include "scaler.hpp"

namespace lab14 {

template <class Model>
class Replica {
 public:
  Replica(Model& model, kit::Group& group)
      : model_(model), group_(group), buffer_(model.size() + 1) {}

  [[nodiscard]] std::span<float> grad() { return std::span<float>(buffer_).first(model_.size()); }
  void zero_grad() { buffer_.assign(buffer_.size(), 0.0F); }
  [[nodiscard]] bool any_rank_overflowed() const { return buffer_.back() != 0; }

  void backward(std::span<const std::uint16_t> weights, int batch, float factor) {
    std::size_t at = 0;
    for (const std::uint16_t code : model_.backward(weights, batch, factor)) {
      const float g = decode(model_.format(), code);
      buffer_[at++] += g;
      if (!std::isfinite(g)) buffer_.back() = 1;
    }
    if (alive_ > 0) return;
    const auto share = 1 / double(group_.world());
    for (float& g : grad()) g = float(share * double(g));
    kit::Work work = group_.all_reduce(buffer_);
    work.wait();
  }

  class NoSync {
   public:
    explicit NoSync(int& alive) : alive_(alive) { ++alive_; }
    ~NoSync() { --alive_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    int& alive_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(alive_); }

 private:
  Model& model_;
  kit::Group& group_;
  std::vector<float> buffer_;
  int alive_ = 0;
};

struct Sgd {
  float lr = 0.01F;
  float momentum = 0;
  std::vector<float> velocity = {};

  void step(std::span<float> values, std::span<const float> grad) {
    velocity.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      velocity[i] = momentum * velocity[i] + grad[i];
      values[i] -= lr * velocity[i];
    }
  }
};

template <class Model>
class Trainer {
 public:
  Trainer(Model& model, kit::Group& group, std::vector<float> masters, int accumulate,
          const ScalerState& scaler, const Sgd& optimizer)
      : model_(model),
        replica_(model, group),
        masters_(std::move(masters)),
        accumulate_(accumulate > 0 ? std::size_t(accumulate)
                                   : throw std::invalid_argument("no batch in a step")),
        scaler_(scaler),
        optimizer_(optimizer) {}

  [[nodiscard]] std::span<const float> masters() const { return masters_; }
  [[nodiscard]] const GradScaler& scaler() const { return scaler_; }

  bool step(std::span<const int> batches) {
    begin();
    for (std::size_t i = 0; i < batches.size(); ++i)
      add(batches[i], i + 1 == batches.size(), batches.size());
    return end();
  }

  int epoch(std::span<const int> batches) {
    int made = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const std::size_t first = i / accumulate_ * accumulate_, rest = batches.size() - first;
      const std::size_t group = rest < accumulate_ ? rest : accumulate_;
      const bool last = i + 1 == first + group;
      if (i == first) begin();
      add(batches[i], last, group);
      if (last && end()) ++made;
    }
    return made;
  }

 private:
  void begin() {
    replica_.zero_grad();
    weights_.resize(masters_.size());
    for (std::size_t i = 0; i < masters_.size(); ++i)
      weights_[i] = encode(model_.format(), masters_[i]);
  }
  void add(int batch, bool last, std::size_t group) {
    const float factor = scaler_.scale(1 / float(group));
    if (last) return replica_.backward(weights_, batch, factor);
    const auto local = replica_.no_sync();
    replica_.backward(weights_, batch, factor);
  }
  bool end() {
    const bool seen = scaler_.unscale({replica_.grad()});
    if (seen != replica_.any_rank_overflowed()) throw std::logic_error("the flag has lied");
    if (!seen) optimizer_.step(masters_, replica_.grad());
    scaler_.update();
    return !seen;
  }

  Model& model_;
  Replica<Model> replica_;
  std::vector<float> masters_;
  std::vector<std::uint16_t> weights_;
  std::size_t accumulate_;
  GradScaler scaler_;
  Sgd optimizer_;
};

}  // namespace lab14
