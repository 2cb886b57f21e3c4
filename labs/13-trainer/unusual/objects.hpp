// Unusual and correct: a trainer object with a method for each part; the bias is one more column of
// the weight; a broadcast travels around the ring to the left; one loader gets all remaining
// samples of an epoch.
#pragma once

#include LAB01_TENSOR
#include LAB03_TAPE
#include LAB04_LAYERS
#include LAB04_LOSS
#include LAB04_OPTIM
#include LAB04_TRAIN
#include LAB05_COST
#include LAB06_RING
#include LAB09_DDP
#include LAB10_SAMPLER
#include LAB10_LOADER

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/background.hpp"
#include "labs/kit/checker/prove.hpp"
#include "labs/kit/todo.hpp"
#include "labs/kit/vault.hpp"

namespace lab13 {

using lab01::Shape;
using lab01::Tensor;
using lab03::Values;
using lab03::Var;
using lab04::Matrix;
using lab04::Parameter;
using Targets = std::vector<std::int64_t>;

inline Tensor tensor_of(const Values& numbers, const Shape& sizes) {
  Tensor t = Tensor::empty(sizes);
  for (std::size_t i = 0; i < numbers.size(); ++i) t.storage().write(std::int64_t(i), numbers[i]);
  return t;
}
inline Values numbers_of(const Tensor& t) {
  const Tensor row = t.contiguous();
  Values numbers(static_cast<std::size_t>(row.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = row.storage().read(row.offset() + std::int64_t(i));
  return numbers;
}

inline Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.sizes()[1] != b.sizes()[0]) lab01::refuse("these do not fit");
  Tensor c = Tensor::empty({a.sizes()[0], b.sizes()[1]});
  c.fill_(0);
  const Tensor left = a.contiguous(), right = b.contiguous();
  const std::int64_t n = b.sizes()[1], inner = a.sizes()[1];
  for (std::int64_t k = 0; k < inner; ++k)
    for (std::int64_t i = 0; i < a.sizes()[0]; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at = c.position({i, j});
        c.storage().write(at,
                          c.storage().read(at) + left.storage().read(left.position({i, k})) *
                                                     right.storage().read(right.position({k, j})));
      }
  return c;
}

inline Var linear(const Var& x, const Var& weight, const Var& bias, std::int64_t rows) {
  const auto outs = std::int64_t(lab03::value(bias).size());
  const auto ins = std::int64_t(lab03::value(x).size()) / rows;
  // The last column of the weight is the bias, for an input that is always 1.
  Tensor wide = Tensor::empty({outs, ins + 1}), ones = Tensor::empty({rows, ins + 1});
  ones.select(1, ins).fill_(1);
  ones.slice(1, 0, ins).copy_(tensor_of(lab03::value(x), {rows, ins}));
  wide.slice(1, 0, ins).copy_(tensor_of(lab03::value(weight), {outs, ins}));
  wide.select(1, ins).copy_(tensor_of(lab03::value(bias), {outs}));
  return lab03::record(numbers_of(matmul(ones, wide.transpose(0, 1))), {weight, x, bias},
                       [=](const std::vector<Var>&, std::size_t input, const Values& grad) {
                         const Tensor dy = tensor_of(grad, {rows, outs});
                         if (input == 1) return numbers_of(matmul(dy, wide).slice(1, 0, ins));
                         const Tensor all = matmul(dy.transpose(0, 1), ones);
                         return numbers_of(input == 0 ? all.slice(1, 0, ins) : all.select(1, ins));
                       });
}

inline Var log_softmax(const Var& logits, std::int64_t rows) {
  const auto classes = std::int64_t(lab03::value(logits).size()) / rows;
  const Tensor z = tensor_of(lab03::value(logits), {rows, classes});
  Tensor y = Tensor::empty({rows, classes}), p = Tensor::empty({rows, classes});
  for (std::int64_t r = 0; r < rows; ++r) {
    const Values row = numbers_of(z.select(0, r));
    const double top = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double v : row) sum += std::exp(v - top);
    for (std::int64_t j = 0; j < classes; ++j) {
      const double log = row[std::size_t(j)] - top - std::log(sum);
      y.storage().write(r * classes + j, log);
      p.storage().write(r * classes + j, std::exp(log));
    }
  }
  return lab03::record(numbers_of(y), {logits}, [=](const auto&, std::size_t, const Values& grad) {
    const Tensor g = tensor_of(grad, {rows, classes});
    Tensor out = Tensor::empty({rows, classes});
    out.copy_(g);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < classes; ++j) {
        const std::int64_t at = r * classes + j;
        out.storage().write(at,
                            out.storage().read(at) - p.storage().read(at) * g.select(0, r).sum());
      }
    return numbers_of(out);
  });
}

class Model {
 public:
  explicit Model(const std::vector<std::size_t>& widths) {
    for (std::size_t i = 1; i < widths.size(); ++i)
      for (const bool weight : {true, false}) {
        list_.emplace_back(weight ? widths[i - 1] * widths[i] : widths[i]);
        list_.back().name = "linear" + std::to_string(i - 1) + (weight ? ".weight" : ".bias");
      }
  }
  [[nodiscard]] std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all;
    for (Parameter& p : list_) all.push_back(&p);
    return all;
  }
  [[nodiscard]] std::vector<Parameter*> parameters() const {
    return const_cast<Model*>(this)->parameters();
  }
  void on_gradient(Parameter* p, std::function<void()> hook) {
    p->hooks.push_back(std::move(hook));
  }
  void on_backward_end(std::function<void()> callback) { ends_.push_back(std::move(callback)); }

  double learn(const Matrix& x, const Targets& targets) {
    const auto rows = std::int64_t(x.rows);
    Var h = lab03::leaf(Values(x.data.begin(), x.data.end()), false);
    bool inside = false;
    for (auto p = list_.begin(); p != list_.end(); std::advance(p, 2)) {
      if (inside) h = lab03::relu(h);
      inside = true;
      h = linear(h, variable(*p), variable(*std::next(p)), rows);
    }
    Values one_hot(lab03::value(h).size());
    for (std::size_t r = 0; r < targets.size(); ++r)
      one_hot[r * one_hot.size() / targets.size() + std::size_t(targets[r])] = 1;
    const Var picked = lab03::mul(lab03::leaf(one_hot, false), log_softmax(h, rows));
    const Var loss = lab03::mul(lab03::sum(picked), lab03::leaf({-1.0 / double(rows)}, false));
    lab03::backward(loss);
    for (auto& end : ends_) end();
    return lab03::value(loss).front();
  }

 private:
  static Var variable(Parameter& p) {
    const Var v = lab03::leaf(Values(p.value.begin(), p.value.end()), p.requires_grad);
    lab03::on_grad(v, [&p](const Var& same) {
      const Values grad = *lab03::grad(same);
      for (std::size_t i = 0; i < grad.size(); ++i) p.grad[i] = float(double(p.grad[i]) + grad[i]);
      p.complete();
    });
    return v;
  }
  std::list<Parameter> list_;
  std::vector<std::function<void()>> ends_;
};

class ByHand : public lab04::MLP {
 public:
  using MLP::MLP;
  double learn(const Matrix& x, const Targets& targets) {
    const lab04::Loss loss = lab04::cross_entropy(forward(x), targets);
    backward(loss.grad);
    return double(loss.value);
  }
};

struct OwnRing {
  static lab06::Step reduce_scatter_step(int world, int rank, int step) {
    return lab06::reduce_scatter_step(world, rank, step);
  }
  static lab06::Step all_gather_step(int world, int rank, int step) {
    return lab06::all_gather_step(world, rank, step);
  }
  template <class Link>
  static void all_reduce(Link& link, std::span<float> data) {
    lab06::all_reduce<float>(link, std::span<const float>(data), data);
  }
};

template <class Ring, class Link>
class RingGroup {
 public:
  RingGroup(Link& link, kit::Background& thread) : link_(&link), thread_(&thread) {}
  [[nodiscard]] int rank() const { return link_->rank(); }
  [[nodiscard]] int world() const { return link_->world(); }
  kit::Background::Work all_reduce(std::span<float> data) {
    return thread_->run([link = link_, data] { Ring::template all_reduce<Link>(*link, data); });
  }
  void broadcast(std::span<float> data, int root) {
    const auto leftward = [this, data, root] {
      // `distance` is counted to the left of the root.
      const int n = world(), distance = (root - rank() + n) % n;
      if (distance > 0) link_->recv((rank() + 1) % n, data);
      if (distance + 1 < n) link_->send((rank() + n - 1) % n, data);
    };
    thread_->run(leftward).wait();
  }

 private:
  Link* link_;
  kit::Background* thread_;
};

template <class Ring>
kit::Schedule schedule_of(int world) {
  kit::Schedule schedule;
  schedule.world = schedule.chunks = world;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<kit::ScheduleStep>& steps = schedule.steps.emplace_back();
    for (int s = 0; s + 1 < world; ++s) {
      const auto [to, send, from, receive] = Ring::reduce_scatter_step(world, rank, s);
      steps.push_back({to, send, from, receive, true});
    }
    for (int s = 0; s + 1 < world; ++s) {
      const auto [to, send, from, receive] = Ring::all_gather_step(world, rank, s);
      steps.push_back({to, send, from, receive, false});
    }
  }
  return schedule;
}

struct Data {
  Matrix x;  // a row for each sample
  Targets targets;
};
struct Batch {
  Matrix x;
  Targets targets;
};

struct Settings {
  std::int64_t batch = 12;  // samples per step, over all ranks
  std::int64_t steps = 20;
  std::uint64_t seed = 0;          // of the shuffling sampler
  std::size_t bucket_bytes = 256;  // of lab 09
  std::int64_t save_every = 0;     // steps; 0: never
};

template <class Ring, class Link, class AnyModel, class Optimizer, class Log>
class Trainer {
 public:
  Trainer(Link& link, AnyModel& model, Optimizer& optimizer, const Data& data, const Settings& s)
      : link_(link), model_(model), optimizer_(optimizer), data_(data), s_(s) {
    const auto samples = std::int64_t(data.targets.size());
    if (s.batch <= 0 || s.batch > samples || s.batch % link.world() != 0)
      throw std::invalid_argument("batch " + std::to_string(s.batch));
    const std::string fault = kit::fault_of(schedule_of<Ring>(link.world()));
    if (fault.size() > 0) throw std::invalid_argument("the checker says: " + fault);
    in_epoch_ = samples / s.batch;
  }
  void restore(const std::vector<double>& all) {
    if (all.empty()) return;
    step_ = std::int64_t(all[0]);
    std::size_t at = 1;
    for (Parameter* p : model_.parameters())
      for (float& v : p->value) v = float(all[at++]);
    optimizer_.load(std::vector<double>(all.begin() + std::ptrdiff_t(at), all.end()));
  }
  [[nodiscard]] std::vector<double> everything() const {
    std::vector<double> all(1, double(step_));
    for (const Parameter* p : model_.parameters())
      all.insert(all.end(), p->value.begin(), p->value.end());
    for (const double v : optimizer_.state()) all.push_back(v);
    return all;
  }
  void run(kit::Vault& vault, Log& log) {
    kit::Background thread;
    RingGroup<Ring, Link> group(link_, thread);
    lab09::DistributedDataParallel ddp(model_, group, s_.bucket_bytes);
    while (step_ < s_.steps) {
      lab10::DistributedSampler sampler(std::int64_t(data_.targets.size()),
                                        {link_.world(), link_.rank(), true, s_.seed, false});
      sampler.set_epoch(step_ / in_epoch_);
      const auto share = std::ptrdiff_t(s_.batch / link_.world());
      std::vector<std::int64_t> mine = sampler.indices();
      mine.resize(std::size_t(in_epoch_ * share));
      mine.erase(mine.begin(), mine.begin() + step_ % in_epoch_ * share);
      lab10::Loader<Batch> loader(mine, {share, 2, 3, false},
                                  [this](std::span<const std::int64_t> ids) { return fetch(ids); });
      for (auto batch = loader.next(); batch && step_ < s_.steps; batch = loader.next())
        one(*batch, group, vault, log);
    }
  }

 private:
  Batch fetch(std::span<const std::int64_t> ids) const {
    Batch batch{Matrix(ids.size(), data_.x.cols), Targets(ids.size())};
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const auto from = std::size_t(ids[r]);
      for (std::size_t c = 0; c < data_.x.cols; ++c) batch.x(r, c) = data_.x(from, c);
      batch.targets[r] = data_.targets[from];
    }
    return batch;
  }
  void one(const Batch& batch, RingGroup<Ring, Link>& group, kit::Vault& vault, Log& log) {
    for (Parameter* p : model_.parameters()) std::fill(p->grad.begin(), p->grad.end(), 0.0F);
    std::vector<float> loss{float(model_.learn(batch.x, batch.targets)), 1.0F};
    optimizer_.step();
    group.all_reduce(loss).wait();
    log(step_, double(loss[0] / loss[1]));
    ++step_;
    if (link_.rank() == 0 && s_.save_every != 0 && step_ % s_.save_every == 0)
      vault.save(everything());
  }

  Link& link_;
  AnyModel& model_;
  Optimizer& optimizer_;
  const Data& data_;
  Settings s_;
  std::int64_t step_ = 0, in_epoch_ = 0;
};

template <class Ring, class Link, class AnyModel, class Optimizer, class Log>
void train(Link& link, AnyModel& model, Optimizer& optimizer, const Data& data,
           const Settings& settings, kit::Vault& vault, Log&& log) {
  Trainer<Ring, Link, AnyModel, Optimizer, std::remove_reference_t<Log>> trainer(
      link, model, optimizer, data, settings);
  trainer.restore(vault.load());
  trainer.run(vault, log);
}

inline double predicted_end(const lab05::Machine& machine, int world, std::span<const double> ready,
                            std::span<const std::size_t> elements) {
  double free_from = 0;  // time at which the ring becomes free
  auto count = elements.begin();
  for (const double at : ready) {
    if (at > free_from) free_from = at;
    free_from += lab05::ring_time(machine, lab05::Job{world, *count++, 4});
  }
  return free_from;
}

}  // namespace lab13
