// Unusual and correct: a unit's shards are one array, its state is an enum, and the gathered copy
// is behind a pointer. reduce pads the gradient in a new buffer before it frees the old one, and
// load copies element by element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "labs/20-fit/group.hpp"

namespace lab20 {

struct Shard {
  std::size_t first = 0;
  std::size_t length = 0;
  std::size_t padded = 0;
};

inline Shard shard_of(std::size_t count, int world, int rank) {
  Shard shard;
  shard.padded = (count == 0 ? 0 : (count - 1) / std::size_t(world) + 1);
  std::size_t left = count;
  for (int r = 0; r < rank; ++r) left -= std::min(left, shard.padded);
  shard.first = count - left;
  shard.length = std::min(left, shard.padded);
  return shard;
}

using Tensors = std::vector<std::vector<float>>;

class Unit {
 public:
  Unit(Group& group, int number, const Tensors& parameters) : group_(group), number_(number) {
    for (const auto& tensor : parameters) sizes_.push_back(tensor.size());
    total_ = std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{0});
    shard_ = shard_of(total_, group.world(), group.rank());
    numbers_.assign(3 * shard_.padded, 0.0F);
    std::size_t begin = 0;  // of the tensor
    for (const auto& tensor : parameters) {
      const std::size_t from = std::max(begin, shard_.first),
                        to = std::min(begin + tensor.size(), shard_.first + shard_.length);
      for (std::size_t i = from; i < to; ++i) numbers_[i - shard_.first] = tensor[i - begin];
      begin += tensor.size();
    }
    if (total_ == 0) state_ = State::here;
  }
  void start_gather() {
    if (state_ != State::away) return;
    copy_.reset(new float[everywhere()]);
    ticket_ =
        group_.start_all_gather(number_, value(), std::span<float>(copy_.get(), everywhere()));
    state_ = State::coming;
  }
  void gather() {
    start_gather();
    if (state_ == State::coming) group_.wait(ticket_);
    state_ = State::here;
  }
  void release() {
    if (total_ == 0 || state_ == State::away) return;
    gather();
    copy_.reset();
    state_ = State::away;
  }
  [[nodiscard]] std::vector<std::span<const float>> parameters() const {
    if (state_ != State::here) throw std::logic_error("not gathered");
    std::vector<std::span<const float>> views;
    const float* at = copy_.get();
    for (const std::size_t size : sizes_) views.emplace_back(at, size), at += size;
    return views;
  }
  void reduce(std::vector<float>& gradient) {
    std::vector<float> padded;
    padded.reserve(everywhere());
    for (const float g : gradient) padded.push_back(g / float(group_.world()));
    padded.resize(everywhere());
    std::vector<float>().swap(gradient);
    if (total_ == 0) return;
    std::vector<float> sum(shard_.padded);
    group_.reduce_scatter(number_, padded, sum);
    std::transform(sum.begin(), sum.end(), this->gradient().begin(), this->gradient().begin(),
                   [](float one, float before) { return before + one; });
  }
  [[nodiscard]] std::span<float> value() { return part(0); }
  [[nodiscard]] std::span<float> gradient() { return part(1); }
  [[nodiscard]] std::span<float> momentum() { return part(2); }
  [[nodiscard]] const Shard& shard() const { return shard_; }
  [[nodiscard]] const std::vector<std::size_t>& sizes() const { return sizes_; }
  [[nodiscard]] std::size_t total() const { return total_; }

 private:
  enum class State { away, coming, here };
  [[nodiscard]] std::size_t everywhere() const {
    return shard_.padded * std::size_t(group_.world());
  }
  std::span<float> part(std::size_t which) {
    return std::span(numbers_).subspan(which * shard_.padded, shard_.padded);
  }

  Group& group_;
  int number_;
  std::vector<std::size_t> sizes_;
  std::size_t total_ = 0;
  Shard shard_;
  std::vector<float> numbers_;  // values, gradients, momenta
  std::unique_ptr<float[]> copy_;
  Group::Ticket ticket_ = 0;
  State state_ = State::away;
};

struct Options {
  bool prefetch = true;
  bool keep = false;
};

inline void sgd(float lr, float mu, float gradient, float& value, float& momentum) {
  momentum = mu * momentum + gradient;
  value -= lr * momentum;
}

struct WholeState {
  std::vector<Tensors> values, momenta;
};
struct SavedShard {
  int rank = 0, world = 0;
  std::vector<float> values, momenta;
};

class Sharded {
 public:
  Sharded(Group& group, const std::vector<Tensors>& model) : group_(group) {
    for (const Tensors& parameters : model)
      units_.emplace_back(group, int(units_.size()), parameters);
  }

  template <class Model>
  void forward_backward(Model& model, Options options = {}) {
    const int n = int(units_.size());
    // The uses in their order: 0 ... n-1 forward, then n-1 ... 0 backward.
    const auto unit_of = [n](int use) { return use < n ? use : 2 * n - 1 - use; };
    for (int use = 0; use < 2 * n; ++use) {
      const int u = unit_of(use);
      Unit& unit = units_[std::size_t(u)];
      unit.gather();
      if (options.prefetch && use + 1 < 2 * n) units_[std::size_t(unit_of(use + 1))].start_gather();
      if (use < n) {
        model.forward(u, unit.parameters());
        if (!options.keep && use != n - 1) unit.release();
        continue;
      }
      std::vector<float> gradient(unit.total());
      model.backward(u, unit.parameters(), std::span<float>(gradient));
      unit.release();
      unit.reduce(gradient);
    }
    fresh_ = true;
  }

  void step(float lr, float mu) {
    if (!fresh_) throw std::logic_error("nothing to step with");
    for (Unit& unit : units_) {
      const std::span<float> value = unit.value(), gradient = unit.gradient(),
                             momentum = unit.momentum();
      for (std::size_t i = 0; i < value.size(); ++i)
        sgd(lr, mu, gradient[i], value[i], momentum[i]);
      std::fill(gradient.begin(), gradient.end(), 0.0F);
    }
    fresh_ = false;
  }

  WholeState whole() {
    WholeState state;
    for (int u = 0; u < int(units_.size()); ++u) {
      take(u, units_[std::size_t(u)].value(), state.values);
      take(u, units_[std::size_t(u)].momentum(), state.momenta);
    }
    return state;
  }

  [[nodiscard]] SavedShard save() {
    SavedShard saved;
    saved.rank = group_.rank();
    saved.world = group_.world();
    for (Unit& unit : units_)
      for (std::size_t i = 0; i < unit.shard().length; ++i) {
        saved.values.push_back(unit.value()[i]);
        saved.momenta.push_back(unit.momentum()[i]);
      }
    return saved;
  }

  void load(const std::vector<SavedShard>& saved) {
    const int before = int(saved.size());
    std::vector<int> place(saved.size(), -1);
    for (int n = 0; n < before; ++n) {
      const SavedShard& s = saved[std::size_t(n)];
      std::size_t expected = 0;
      if (s.world == before && s.rank >= 0 && s.rank < before)
        for (const Unit& unit : units_) expected += shard_of(unit.total(), before, s.rank).length;
      else
        throw std::invalid_argument("not a shard of this job");
      if (place[std::size_t(s.rank)] >= 0) throw std::invalid_argument("a rank is there twice");
      if (s.values.size() != expected || s.momenta.size() != expected)
        throw std::invalid_argument("not a shard of this model");
      place[std::size_t(s.rank)] = n;
    }
    if (saved.empty()) throw std::invalid_argument("no shards");
    std::vector<std::size_t> offset(saved.size(), 0);
    for (Unit& unit : units_) {
      const std::size_t each = shard_of(unit.total(), before, 0).padded;
      for (std::size_t i = 0; i < unit.shard().length; ++i) {
        const std::size_t global = unit.shard().first + i, rank = global / each;
        const SavedShard& from = saved[std::size_t(place[rank])];
        unit.value()[i] = from.values[offset[rank] + global % each];
        unit.momentum()[i] = from.momenta[offset[rank] + global % each];
      }
      for (int r = 0; r < before; ++r)
        offset[std::size_t(r)] += shard_of(unit.total(), before, r).length;
      for (float& g : unit.gradient()) g = 0;
    }
    fresh_ = false;
  }

  [[nodiscard]] std::vector<Unit>& units() { return units_; }

 private:
  void take(int u, std::span<const float> part, std::vector<Tensors>& to) {
    const Unit& unit = units_[std::size_t(u)];
    std::vector<float> all(part.size() * std::size_t(group_.world()));
    if (unit.total() > 0) group_.wait(group_.start_all_gather(u, part, all));
    if (group_.rank() > 0) return;
    to.emplace_back();
    std::size_t at = 0;
    for (const std::size_t size : unit.sizes()) {
      const std::span<const float> tensor = std::span(all).subspan(at, size);
      to.back().emplace_back(tensor.begin(), tensor.end());
      at += size;
    }
  }

  Group& group_;
  std::vector<Unit> units_;
  bool fresh_ = false;
};

}  // namespace lab20
