// Lab 20, part 1: fully sharded data parallelism (ZeRO, stage 3).
//
//     a unit of 7 parameters on 3 ranks     rank 0      rank 1      rank 2
//
//     between uses: a shard                 abc         def         g..
//     before a use: gather                  abcdefg..   abcdefg..   abcdefg..
//     after it: release                     abc         def         g..
//     its gradient: reduce-scatter          ABC         DEF         G..
//
// A unit is a piece of the model, for instance a layer. The points are padding: all shards of a
// unit have the same length. While it trains, no rank holds more than two whole units (without
// Options::keep).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/20-fit/group.hpp"
#include "labs/kit/todo.hpp"

namespace lab20 {

// The part of a unit's `count` parameters on one rank: [first, first + length), then padding up to
// `padded` elements, which is the same number on all ranks.
struct Shard {
  std::size_t first = 0;
  std::size_t length = 0;
  std::size_t padded = 0;
};

// Task 1. padded is count / world, rounded up. Each rank has this number of parameters as long as
// parameters remain: 7 on 3 ranks are 3, 3, 1, and 4 on 3 ranks are 2, 2, 0. An empty shard begins
// at `count`.
inline Shard shard_of(std::size_t count, int world, int rank) {
#ifdef SOLUTION
  const std::size_t padded = count / std::size_t(world) + (count % std::size_t(world) != 0);
  const std::size_t first = std::min(count, padded * std::size_t(rank));
  return {first, std::min(padded, count - first), padded};
#else
  (void)count, (void)world, (void)rank;
  kit::todo("task 1, shard_of");
#endif
}

using Tensors = std::vector<std::vector<float>>;  // the parameters of a unit: weights, a bias ...

// A unit's parameters, of which this rank keeps one shard.
class Unit {
 public:
  // Task 2. Keeps this rank's shard of `parameters`, laid end to end; the padding is zero. All
  // ranks pass the same parameters. Gradient and momentum begin at zero. Sends nothing.
  // number: which unit this is, for the group.
  Unit(Group& group, int number, const Tensors& parameters) : group_(&group), number_(number) {
#ifdef SOLUTION
    std::size_t count = 0;
    for (const std::vector<float>& p : parameters) {
      sizes_.push_back(p.size());
      count += p.size();
    }
    shard_ = shard_of(count, group.world(), group.rank());
    value_.resize(shard_.padded);
    gradient_.resize(shard_.padded);
    momentum_.resize(shard_.padded);
    std::size_t at = 0;
    for (const std::vector<float>& p : parameters)
      for (const float x : p) {
        if (at >= shard_.first && at < shard_.first + shard_.length) value_[at - shard_.first] = x;
        ++at;
      }
#else
    (void)parameters;
    kit::todo("task 2, Unit");
#endif
  }

  // Task 3. Starts the all-gather of the values, and returns without waiting. Does nothing if the
  // unit is gathered, or its gather already started.
  void start_gather() {
#ifdef SOLUTION
    if (!whole_.empty() || shard_.padded == 0) return;
    whole_.resize(shard_.padded * std::size_t(group_->world()));
    ticket_ = group_->start_all_gather(number_, value_, whole_);
    waiting_ = true;
#else
    kit::todo("task 3, start_gather");
#endif
  }
  // Also task 3. The unit is gathered when this returns. Does nothing if it was. A unit of no
  // parameters is always gathered, and never needs a collective.
  void gather() {
#ifdef SOLUTION
    start_gather();
    if (waiting_) group_->wait(ticket_);
    waiting_ = false;
#else
    kit::todo("task 3, gather");
#endif
  }
  // Also task 3. Frees the memory of the gathered values; the shard stays. Does nothing if the unit
  // is not gathered. A started gather is waited for first, because it would write into this memory.
  void release() {
#ifdef SOLUTION
    if (waiting_) group_->wait(ticket_);
    waiting_ = false;
    whole_ = std::vector<float>();  // {} would keep the memory
#else
    kit::todo("task 3, release");
#endif
  }
  // Also task 3. Returns views of the gathered parameters, one for each tensor of the constructor,
  // with its size. Throws std::logic_error unless the unit is gathered.
  [[nodiscard]] std::vector<std::span<const float>> parameters() const {
#ifdef SOLUTION
    if (waiting_ || (whole_.empty() && shard_.padded != 0))
      throw std::logic_error("unit " + std::to_string(number_) + " is not gathered");
    std::vector<std::span<const float>> views;
    std::size_t at = 0;
    for (const std::size_t size : sizes_) {
      views.push_back(std::span(whole_).subspan(at, size));
      at += size;
    }
    return views;
#else
    kit::todo("task 3, parameters");
#endif
  }

  // Task 4. Averages a gradient over the ranks, and *adds* this rank's shard of the average to the
  // shard of the gradient: divides each element by the number of ranks, sums, then adds. One
  // collective, or none for a unit of no parameters. gradient: this rank's gradient of all
  // parameters, laid end to end. Frees its memory in each case: leaves it with a capacity of 0.
  void reduce(std::vector<float>& gradient) {
#ifdef SOLUTION
    if (shard_.padded != 0) {
      for (float& g : gradient) g /= float(group_->world());
      // Without reserve, resize doubles the capacity.
      gradient.reserve(shard_.padded * std::size_t(group_->world()));
      gradient.resize(shard_.padded * std::size_t(group_->world()));
      std::vector<float> mine(shard_.padded);
      group_->reduce_scatter(number_, gradient, mine);
      for (std::size_t i = 0; i < mine.size(); ++i) gradient_[i] += mine[i];
    }
    gradient = std::vector<float>();
#else
    (void)gradient;
    kit::todo("task 4, reduce");
#endif
  }

  // Given; add the members that you need. Each of the three has shard_of(...).padded elements.
  [[nodiscard]] std::span<float> value() { return value_; }
  [[nodiscard]] std::span<float> gradient() { return gradient_; }
  [[nodiscard]] std::span<float> momentum() { return momentum_; }
  [[nodiscard]] const Shard& shard() const { return shard_; }
  [[nodiscard]] const std::vector<std::size_t>& sizes() const { return sizes_; }  // of the tensors

 private:
  Group* group_;
  int number_;
  std::vector<std::size_t> sizes_;
  Shard shard_;
  std::vector<float> value_, gradient_, momentum_;
#ifdef SOLUTION
  std::vector<float> whole_;  // empty unless gathered
  Group::Ticket ticket_ = 0;
  bool waiting_ = false;
#endif
};

struct Options {
  bool prefetch = true;  // false: no gather is started before the unit is needed
  bool keep = false;     // true: units stay gathered from forward to backward (ZeRO, stage 2)
};

// Given. Updates one element; do not rewrite it, because the bits matter.
inline void sgd(float lr, float mu, float gradient, float& value, float& momentum) {
  momentum = mu * momentum + gradient;
  value -= lr * momentum;
}

// One tensor for each tensor of the model, unit by unit.
struct WholeState {
  std::vector<Tensors> values, momenta;
};
// The elements of one rank, unit after unit, without padding.
struct SavedShard {
  int rank = 0, world = 0;
  std::vector<float> values, momenta;
};

class Sharded {
 public:
  // model: the parameters of each unit. Given.
  Sharded(Group& group, const std::vector<Tensors>& model) : group_(&group) {
    units_.reserve(model.size());
    for (const Tensors& parameters : model)
      units_.emplace_back(group, int(units_.size()), parameters);
  }

  // Tasks 5 and 6. One forward and one backward of all units:
  //     model.forward(u, parameters)             u = 0, 1, ...;  parameters as Unit::parameters()
  //     model.backward(u, parameters, gradient)  u = ..., 1, 0
  // gradient: a std::span<float> for all parameters of the unit, laid end to end, that backward()
  // fills. Allocate it for one unit at a time. After backward(u), release the unit first, and then
  // reduce its gradient.
  //
  // Task 5: a unit is gathered when it is used, and released after it. But the last unit's backward
  // follows its forward: it stays gathered in between. n units need 2 n - 1 gathers; with
  // options.keep they need n, because every unit stays gathered until its backward is done.
  // Task 6: with options.prefetch, the gather of the unit that is needed next, if it is not
  // gathered, is started before a unit computes, in forward and in backward, so that the network
  // and the processor work simultaneously. If that unit has no parameters, no gather is started.
  // Two whole units is the most that a rank holds (except with options.keep).
  template <class Model>
  void forward_backward(Model& model, Options options = {}) {
#ifdef SOLUTION
    const std::size_t n = units_.size();
    for (std::size_t u = 0; u < n; ++u) {
      units_[u].gather();
      if (options.prefetch && u + 1 < n) units_[u + 1].start_gather();
      model.forward(int(u), units_[u].parameters());
      if (!options.keep && u + 1 < n) units_[u].release();
    }
    for (std::size_t u = n; u-- > 0;) {
      units_[u].gather();
      if (options.prefetch && u > 0) units_[u - 1].start_gather();
      std::size_t count = 0;
      for (const std::size_t size : units_[u].sizes()) count += size;
      std::vector<float> gradient(count);
      model.backward(int(u), units_[u].parameters(), std::span<float>(gradient));
      units_[u].release();
      units_[u].reduce(gradient);
    }
    reduced_ = true;
#else
    (void)model, (void)options;
    kit::todo("task 5, forward_backward");
#endif
  }

  // Task 7. Calls sgd() for the elements of this rank's shards, and sets the gradients to zero.
  // Several calls of forward_backward() before it accumulate. Throws std::logic_error, and changes
  // nothing, if there was none since the last step() or load(). Sends nothing.
  void step(float lr, float mu) {
#ifdef SOLUTION
    if (!reduced_) throw std::logic_error("step: no forward_backward() since the last one");
    reduced_ = false;
    for (Unit& unit : units_)
      for (std::size_t i = 0; i < unit.shard().length; ++i) {
        sgd(lr, mu, unit.gradient()[i], unit.value()[i], unit.momentum()[i]);
        unit.gradient()[i] = 0;
      }
#else
    (void)lr, (void)mu;
    kit::todo("task 7, step");
#endif
  }

  // Task 8. Returns the values and momenta of the whole model on rank 0, and two empty lists on the
  // others. All ranks call it. Only rank 0 may hold more than one whole unit. Unit by unit, two
  // gathers for each unit that has parameters: the values', then the momenta's.
  WholeState whole() {
#ifdef SOLUTION
    WholeState state;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      Unit& unit = units_[u];
      for (const bool momenta : {false, true}) {
        const std::span<float> part = momenta ? unit.momentum() : unit.value();
        std::vector<float> all(part.size() * std::size_t(group_->world()));
        if (!all.empty()) group_->wait(group_->start_all_gather(int(u), part, all));
        if (group_->rank() != 0) continue;
        Tensors tensors;
        auto from = all.begin();
        for (const std::size_t size : unit.sizes()) {
          tensors.emplace_back(from, from + std::ptrdiff_t(size));
          from += std::ptrdiff_t(size);
        }
        (momenta ? state.momenta : state.values).push_back(std::move(tensors));
      }
    }
    return state;
#else
    kit::todo("task 8, whole");
#endif
  }

  // Task 9. Returns this rank's elements. Sends nothing.
  [[nodiscard]] SavedShard save() {
#ifdef SOLUTION
    SavedShard saved{group_->rank(), group_->world(), {}, {}};
    for (Unit& unit : units_) {
      const auto length = std::ptrdiff_t(unit.shard().length);
      saved.values.insert(saved.values.end(), unit.value().begin(), unit.value().begin() + length);
      saved.momenta.insert(saved.momenta.end(), unit.momentum().begin(),
                           unit.momentum().begin() + length);
    }
    return saved;
#else
    kit::todo("task 9, save");
#endif
  }
  // Task 10. Continues like the ranks that saved these shards. There may have been more or fewer of
  // them than this group has. saved: one shard from each of those ranks, in any order. Sets the
  // gradients to zero. Throws std::invalid_argument, and changes nothing, if a rank is missing or
  // occurs twice, if the `world` of a shard is not the number of shards, or if a shard does not
  // have the number of elements that this model has on its rank. Sends nothing, and never holds
  // more than a shard in new memory.
  void load(const std::vector<SavedShard>& saved) {
#ifdef SOLUTION
    std::vector<const SavedShard*> of(saved.size(), nullptr);
    for (const SavedShard& s : saved) {
      if (s.world != int(saved.size()) || s.rank < 0 || s.rank >= s.world ||
          of[std::size_t(s.rank)] != nullptr)
        throw std::invalid_argument("load: a shard of rank " + std::to_string(s.rank) + " of " +
                                    std::to_string(s.world));
      of[std::size_t(s.rank)] = &s;
    }
    const int before = int(saved.size());
    if (before == 0) throw std::invalid_argument("load: no shards");
    for (const SavedShard& s : saved) {
      std::size_t length = 0;
      for (const Unit& unit : units_) length += shard_of(count_of(unit), before, s.rank).length;
      if (s.values.size() != length || s.momenta.size() != length)
        throw std::invalid_argument("load: the shard of rank " + std::to_string(s.rank) + " has " +
                                    std::to_string(s.values.size()) + " elements, not " +
                                    std::to_string(length));
    }
    std::vector<std::size_t> at(saved.size(), 0);  // where the unit begins in each saved shard
    for (Unit& unit : units_) {
      const Shard mine = unit.shard();
      for (int r = 0; r < before; ++r) {
        const Shard there = shard_of(count_of(unit), before, r);
        const std::size_t first = std::max(mine.first, there.first),
                          last = std::min(mine.first + mine.length, there.first + there.length);
        for (std::size_t i = first; i < last; ++i) {
          const std::size_t from = at[std::size_t(r)] + i - there.first;
          unit.value()[i - mine.first] = of[std::size_t(r)]->values[from];
          unit.momentum()[i - mine.first] = of[std::size_t(r)]->momenta[from];
        }
        at[std::size_t(r)] += there.length;
      }
      std::ranges::fill(unit.gradient(), 0.0F);
    }
    reduced_ = false;
#else
    (void)saved;
    kit::todo("task 10, load");
#endif
  }

  // Given: for the tests.
  [[nodiscard]] std::vector<Unit>& units() { return units_; }

 private:
  Group* group_;
  std::vector<Unit> units_;
#ifdef SOLUTION
  static std::size_t count_of(const Unit& unit) {
    std::size_t count = 0;
    for (const std::size_t size : unit.sizes()) count += size;
    return count;
  }
  bool reduced_ = false;  // is there a gradient since the last step?
#endif
};

}  // namespace lab20
