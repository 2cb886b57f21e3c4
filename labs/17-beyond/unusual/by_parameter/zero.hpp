// Unusual and correct: m and v are stored as pairs, the reduced gradients exist only between
// reduce_gradients() and step(), and each rank copies only its own elements before the update.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "labs/17-beyond/group.hpp"

namespace lab17 {

struct Shard {
  std::size_t first = 0;
  std::size_t length = 0;
};

inline Shard shard_of(std::size_t count, int world, int rank) {
  std::size_t each = count / std::size_t(world);
  if (each * std::size_t(world) < count) ++each;
  Shard shard;
  for (int r = 0; r <= rank; ++r) {
    shard.first += shard.length;
    shard.length = std::min(each, count - shard.first);
  }
  return shard;
}

struct Parameter {
  std::span<float> value;
  std::span<const float> grad;
  bool trainable = true;
};

struct AdamW {
  float lr = 1e-3F, beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F, weight_decay = 0.01F;
};
inline void adamw(const AdamW& o, std::int64_t step, float grad, float& value, float& m, float& v) {
  m = o.beta1 * m + (1 - o.beta1) * grad;
  v = o.beta2 * v + (1 - o.beta2) * (grad * grad);
  const auto correct1 = float(1 - std::pow(double(o.beta1), double(step)));
  const auto correct2 = float(1 - std::pow(double(o.beta2), double(step)));
  const float kept = value - o.lr * o.weight_decay * value;
  value = kept - o.lr * (m / correct1) / (std::sqrt(v / correct2) + o.eps);
}

struct FullState {
  std::int64_t steps = 0;
  std::vector<float> m, v;
};

class ShardedAdamW {
 public:
  ShardedAdamW(Group& group, std::vector<Parameter> parameters, const AdamW& options)
      : group_(group), options_(options) {
    for (const Parameter& p : parameters)
      if (p.trainable) trainable_.push_back(p);
    shard_ = shard_of(count(), group.world(), group.rank());
    moments_.resize(shard_.length);
  }

  void reduce_gradients() {
    std::vector<float> all(count());
    std::size_t at = 0;
    for (const Parameter& p : trainable_)
      for (std::size_t i = 0; i < p.grad.size(); ++i) all[at++] = p.grad[i] / float(group_.world());
    gradient_.emplace(shard_.length);
    group_.reduce_scatter(all, counts(), *gradient_);
  }

  double clip(double max_norm) {
    if (!gradient_) throw std::logic_error("nothing to clip");
    double mine = 0;
    for (const float g : *gradient_) mine += std::pow(double(g), 2);
    std::vector<double> each(std::size_t(group_.world()));
    group_.all_gather(std::vector{mine}, Counts(each.size(), 1), each);
    double sum = 0;
    for (const double one : each) sum += one;
    const double quotient = max_norm / (std::sqrt(sum) + 1e-6);
    const float factor = quotient > 1 ? 1.0F : float(quotient);
    for (float& g : *gradient_) g *= factor;
    return std::sqrt(sum);
  }

  void step() {
    if (!gradient_) throw std::logic_error("nothing was reduced");
    steps_ += 1;
    std::vector<float> mine(shard_.length), all(count());
    std::size_t at = 0;
    for (const Parameter& p : trainable_)
      for (float& value : p.value) {
        if (at >= shard_.first && at < shard_.first + shard_.length) {
          const std::size_t i = at - shard_.first;
          mine[i] = value;
          adamw(options_, steps_, (*gradient_)[i], mine[i], moments_[i].m, moments_[i].v);
        }
        ++at;
      }
    gradient_.reset();
    group_.all_gather(mine, counts(), all);
    at = 0;
    for (const Parameter& p : trainable_) {
      std::copy_n(all.begin() + std::ptrdiff_t(at), p.value.size(), p.value.begin());
      at += p.value.size();
    }
  }

  FullState state() {
    std::vector<Moments> all(count());
    group_.all_gather(moments_, counts(), all);
    FullState full{steps_, {}, {}};
    for (const Moments& one : all) {
      full.m.push_back(one.m);
      full.v.push_back(one.v);
    }
    return full;
  }

  void load(const FullState& full) {
    const bool fits = full.m.size() == count() && full.v.size() == count();
    if (!fits || full.steps < 0) throw std::invalid_argument("this state is of another model");
    steps_ = full.steps;
    for (std::size_t i = 0; i < shard_.length; ++i)
      moments_[i] = {full.m[shard_.first + i], full.v[shard_.first + i]};
  }

 private:
  struct Moments {
    float m = 0, v = 0;
  };
  [[nodiscard]] std::size_t count() const {
    std::size_t sum = 0;
    for (const Parameter& p : trainable_) sum += p.value.size();
    return sum;
  }
  [[nodiscard]] Counts counts() const {
    Counts out;
    for (int r = 0; r < group_.world(); ++r)
      out.push_back(shard_of(count(), group_.world(), r).length);
    return out;
  }

  Group& group_;
  AdamW options_;
  std::vector<Parameter> trainable_;
  Shard shard_;
  std::vector<Moments> moments_;
  std::optional<std::vector<float>> gradient_;
  std::int64_t steps_ = 0;
};

}  // namespace lab17
