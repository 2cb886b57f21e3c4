// Unusual and correct: rows and columns are separate tensors; the bias and the selection of the
// target are operations too; broadcast() sends from the root to each rank; batches are cut without
// a loader; a checkpoint begins with the optimizer's state; the loss is summed while the optimizer
// steps.
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
#include <memory>
#include <numeric>
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
  if (a.sizes().at(1) != b.sizes().at(0)) throw std::invalid_argument("inner sizes");
  std::vector<Values> columns;
  for (std::int64_t j = 0; j < b.sizes()[1]; ++j) columns.push_back(numbers_of(b.select(1, j)));
  Values c;
  for (std::int64_t i = 0; i < a.sizes()[0]; ++i) {
    const Values row = numbers_of(a.select(0, i));
    for (const Values& column : columns)
      c.push_back(std::inner_product(row.begin(), row.end(), column.begin(), 0.0));
  }
  return tensor_of(c, {a.sizes()[0], b.sizes()[1]});
}

// Returns x W^T, without the bias.
inline Var product(const Var& x, const Var& weight, std::int64_t rows, std::int64_t ins) {
  const auto shape = [=](const Var& v, std::int64_t cols) {
    const auto count = std::int64_t(lab03::value(v).size());
    return tensor_of(lab03::value(v), {cols == 0 ? 0 : count / cols, cols});
  };
  const Tensor y = matmul(shape(x, ins), shape(weight, ins).transpose(0, 1));
  return lab03::record(
      numbers_of(y), {x, weight},
      [=](const std::vector<Var>& inputs, std::size_t which, const Values& grad) {
        const Tensor dy = tensor_of(grad, {rows, std::int64_t(grad.size()) / rows});
        return numbers_of(which == 0 ? matmul(dy, shape(inputs[1], ins))
                                     : matmul(dy.transpose(0, 1), shape(inputs[0], ins)));
      });
}
inline Var repeated(const Var& bias, std::int64_t rows) {
  Values y;
  for (std::int64_t r = 0; r < rows; ++r)
    y.insert(y.end(), lab03::value(bias).begin(), lab03::value(bias).end());
  return lab03::record(y, {bias},
                       [](const std::vector<Var>& inputs, std::size_t, const Values& grad) {
                         Values sums(lab03::value(inputs[0]).size());
                         for (std::size_t i = 0; i < grad.size(); ++i)
                           sums[i % sums.size()] += grad[i];
                         return sums;
                       });
}
inline Var linear(const Var& x, const Var& weight, const Var& bias, std::int64_t rows) {
  const std::int64_t ins = std::int64_t(lab03::value(x).size()) / rows;
  return lab03::add(product(x, weight, rows, ins), repeated(bias, rows));
}

inline Var log_softmax(const Var& logits, std::int64_t rows) {
  Values y = lab03::value(logits), p;
  const std::size_t n = y.size() / std::size_t(rows);
  for (std::size_t r = 0; r < y.size(); r += n) {
    double top = y[r], sum = 1;  // of exp(z - top), over the elements so far
    for (std::size_t j = r + 1; j < r + n; ++j) {
      if (y[j] > top) sum *= std::exp(top - y[j]), top = y[j];
      sum += std::exp(y[j] - top);
    }
    for (std::size_t j = r; j < r + n; ++j) p.push_back(std::exp(y[j] - top) / sum);
    for (std::size_t j = r; j < r + n; ++j) y[j] = y[j] - top - std::log(sum);
  }
  return lab03::record(y, {logits}, [p, n](const auto&, std::size_t, const Values& grad) {
    Values out;
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const auto row = grad.begin() + std::ptrdiff_t(i / n * n);
      out.push_back(grad[i] - p[i] * std::accumulate(row, row + std::ptrdiff_t(n), 0.0));
    }
    return out;
  });
}

class Model {
 public:
  explicit Model(std::vector<std::size_t> widths) : layers_(std::move(widths)) {}
  [[nodiscard]] std::vector<Parameter*> parameters() const { return layers_.parameters(); }
  void on_gradient(Parameter* p, const std::function<void()>& hook) { p->hooks.push_back(hook); }
  void on_backward_end(const std::function<void()>& callback) { ends_.push_back(callback); }

  double learn(const Matrix& x, const Targets& targets) {
    const auto rows = std::int64_t(x.rows);
    std::vector<Var> leaves;
    for (Parameter* p : parameters()) {
      leaves.push_back(lab03::leaf({p->value.begin(), p->value.end()}, p->requires_grad));
      lab03::on_grad(leaves.back(), [p](const Var& v) {
        std::transform(p->grad.begin(), p->grad.end(), lab03::grad(v)->begin(), p->grad.begin(),
                       [](float have, double more) { return float(have + more); });
        p->complete();
      });
    }
    Var h = lab03::leaf({x.data.begin(), x.data.end()}, false);
    for (std::size_t k = 0; k < leaves.size(); k += 2) {
      h = linear(h, leaves[k], leaves[k + 1], rows);
      if (k + 2 < leaves.size()) h = lab03::relu(h);
    }
    const Var logs = log_softmax(h, rows);
    const std::size_t classes = lab03::value(logs).size() / x.rows;
    double total = 0;
    for (std::size_t r = 0; r < x.rows; ++r)
      total -= lab03::value(logs)[r * classes + std::size_t(targets[r])];
    const Var loss = lab03::record(
        {total / double(rows)}, {logs}, [=](const auto&, std::size_t, const Values& grad) {
          Values out(targets.size() * classes);
          for (std::size_t r = 0; r < targets.size(); ++r)
            out[r * classes + std::size_t(targets[r])] = -grad[0] / double(targets.size());
          return out;
        });
    lab03::backward(loss);
    for (const auto& end : ends_) end();
    return total / double(rows);
  }

 private:
  lab04::MLP layers_;  // only for the parameters and their names
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
  RingGroup(Link& link, kit::Background& thread) : link_(link), thread_(thread) {}
  [[nodiscard]] int rank() const { return link_.rank(); }
  [[nodiscard]] int world() const { return link_.world(); }
  kit::Background::Work all_reduce(std::span<float> data) {
    return thread_.run([data, &link = link_] { Ring::all_reduce(link, data); });
  }
  void broadcast(std::span<float> data, int root) {
    thread_
        .run([&] {
          if (rank() != root) return link_.recv(root, data);
          for (int r = 0; r < world(); ++r)
            if (r != root) link_.send(r, data);
        })
        .wait();
  }

 private:
  Link& link_;
  kit::Background& thread_;
};

template <class Ring>
kit::Schedule schedule_of(int world) {
  const auto n = std::size_t(world);
  kit::Schedule all{world, world, std::vector<std::vector<kit::ScheduleStep>>(n)};
  for (int s = 0; s < 2 * (world - 1); ++s)
    for (int r = 0; r < world; ++r) {
      const bool first = s < world - 1;
      const auto step = first ? Ring::reduce_scatter_step(world, r, s)
                              : Ring::all_gather_step(world, r, s - (world - 1));
      all.steps[std::size_t(r)].push_back(
          {step.to, step.send_chunk, step.from, step.recv_chunk, first});
    }
  return all;
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
void train(Link& link, AnyModel& model, Optimizer& optimizer, const Data& data,
           const Settings& settings, kit::Vault& vault, Log&& log) {
  const std::int64_t n = std::int64_t(data.targets.size()), world = link.world(),
                     all = settings.batch;
  if (all < 1 || all > n || all % world != 0)
    throw std::invalid_argument("this batch cannot be shared");
  if (const std::string why = kit::fault_of(schedule_of<Ring>(int(world))); why != "")
    throw std::invalid_argument(why);
  std::int64_t first = 0;
  std::vector<double> saved = vault.load();
  if (!saved.empty()) {  // state, parameters, step
    first = std::int64_t(saved.back());
    saved.pop_back();
    const std::vector<Parameter*> parameters = model.parameters();
    for (auto p = parameters.rbegin(); p != parameters.rend(); ++p)
      for (auto value = (*p)->value.rbegin(); value != (*p)->value.rend(); ++value) {
        *value = float(saved.back());
        saved.pop_back();
      }
    optimizer.load(saved);
  }
  kit::Background thread;
  RingGroup<Ring, Link> group(link, thread);
  lab09::DistributedDataParallel<AnyModel, RingGroup<Ring, Link>> replica(model, group,
                                                                          settings.bucket_bytes);
  std::vector<std::int64_t> mine;  // this rank's samples of the epoch
  for (std::int64_t step = first; step < settings.steps; ++step) {
    const std::int64_t in_epoch = n / all, place = step % in_epoch;
    if (step == first || place == 0) {
      lab10::DistributedSampler sampler(n, {int(world), link.rank(), true, settings.seed, false});
      sampler.set_epoch(step / in_epoch);
      mine = sampler.indices();
    }
    Matrix x(std::size_t(all / world), data.x.cols);
    Targets targets;
    for (std::size_t r = 0; r < x.rows; ++r) {
      const auto sample = std::size_t(mine[std::size_t(place * (all / world)) + r]);
      std::copy_n(data.x.data.begin() + std::ptrdiff_t(sample * x.cols), x.cols,
                  x.data.begin() + std::ptrdiff_t(r * x.cols));
      targets.push_back(data.targets[sample]);
    }
    lab04::zero_grad(model.parameters());
    std::vector<float> loss{float(model.learn(x, targets)) / float(world)};
    auto sum = group.all_reduce(loss);
    optimizer.step();
    sum.wait();
    log(step, double(loss[0]));
    if (settings.save_every > 0 && (step + 1) % settings.save_every == 0 && link.rank() == 0) {
      std::vector<double> everything = optimizer.state();
      for (const Parameter* p : model.parameters())
        everything.insert(everything.end(), p->value.begin(), p->value.end());
      everything.push_back(double(step + 1));
      vault.save(everything);
    }
  }
}

inline double predicted_end(const lab05::Machine& machine, int world, std::span<const double> ready,
                            std::span<const std::size_t> elements) {
  if (ready.empty()) return 0;
  const std::size_t last = ready.size() - 1;
  return std::max(ready[last],
                  predicted_end(machine, world, ready.first(last), elements.first(last))) +
         lab05::ring_time(machine, {world, elements[last], 4});
}

}  // namespace lab13
