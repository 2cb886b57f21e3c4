// A small training run to be saved and resumed, with every kind of state that real ones have.
// Given. Read it: state that is missing from a checkpoint causes no error, only a different run.
//
//   order of the epoch   7 2 9 0 4 1 8 3 6 5       each step uses the next `world` places
//   step 0               ^ ^ ^                     used = 3
//   step 1                     ^ ^ ^               used = 6
//   step 3                                 ^       one place is left: only one rank has a sample
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/link.hpp"

namespace lab16 {

struct TrainingOptions {
  std::int64_t samples = 10;
  std::uint64_t seed = 1;
  std::size_t parameters = 6;
};

class Training {
 public:
  Training(int rank, int world, TrainingOptions options)
      : parameters(options.parameters),
        momentum(options.parameters),
        generator(std::uint32_t(options.seed * 1000003 + std::uint64_t(rank))),
        rank_(rank),
        world_(world),
        options_(options) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i] = 1.0F / float(i + 2) + float(options.seed % 7) / 8.0F;
    begin_epoch(0);
  }

  // The state. It is the same on all ranks, except for the generator.
  std::int64_t step = 0;               // steps done
  std::vector<float> parameters;       // of the model
  std::vector<float> momentum;         // of SGD, one for each parameter
  float average_loss = 0;              // moving average; the learning rate depends on it
  std::int64_t epoch = 0;              // number of the current epoch
  std::int64_t used = 0;               // places of the epoch's order used so far, by all ranks
  std::mt19937 generator;              // this rank's noise
  std::map<int, std::string> carried;  // for your save(); training ignores it

  void begin_epoch(std::int64_t number) {
    epoch = number;
    used = 0;
    order_.resize(std::size_t(options_.samples));
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    std::mt19937 draw(std::uint32_t(options_.seed + std::uint64_t(number)));
    for (std::size_t i = 0; i + 1 < order_.size(); ++i)
      std::swap(order_[i], order_[i + draw() % (order_.size() - i)]);
  }

  // Makes one step; all ranks call it.
  void train(kit::Link& link) {
    const std::int64_t now = std::min<std::int64_t>(world_, options_.samples - used);
    std::vector<float> sum(parameters.size() + 1);  // gradients and the loss
    std::int64_t id = -1;
    if (rank_ < now) {
      id = order_[std::size_t(used + rank_)];
      const std::uint32_t noise = generator();
      noises.push_back(noise);
      const float x = float(id % 97) / 97.0F + float(noise % 1024) / 65536.0F;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const float error = parameters[i] - std::sin(x * float(i + 1));
        sum[i] = error;
        sum.back() += error * error;
      }
    }
    ids.push_back(id);
    add_up(link, sum);
    for (float& s : sum) s /= float(now);
    average_loss = step == 0 ? sum.back() : 0.75F * average_loss + 0.25F * sum.back();
    const float rate = 0.1F * std::min(1.0F, float(step + 1) / 8.0F) / (1.0F + average_loss);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      momentum[i] = 0.875F * momentum[i] + sum[i];
      parameters[i] -= rate * momentum[i];
    }
    ++step;
    used += now;
    if (used == options_.samples) begin_epoch(epoch + 1);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const TrainingOptions& options() const { return options_; }

  // For drivers. ids: the sample of each step, -1 for none. noises: the values drawn, one a sample.
  std::vector<std::int64_t> ids, noises;

 private:
  // Rank 0 adds in rank order, so that the same number of ranks always gives the same bits.
  void add_up(kit::Link& link, std::vector<float>& values) const {
    if (rank_ > 0) {
      link.send(0, std::span(values));
      link.recv(0, std::span(values));
      return;
    }
    std::vector<float> other(values.size());
    for (int r = 1; r < world_; ++r) {
      link.recv(r, std::span(other));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += other[i];
    }
    for (int r = 1; r < world_; ++r) link.send(r, std::span(values));
  }

  int rank_, world_;
  TrainingOptions options_;
  std::vector<std::int64_t> order_;  // of this epoch
};

}  // namespace lab16
