// Lab 13: your own trainer, which combines your earlier labs.
//
//     lab 10  sampler, loader ----> batch                    every rank: its part of the batch
//     lab 01  tensors ---+
//     lab 03  tape ------+--------> loss ----> gradients     layer by layer, the last one first
//     lab 04  layers ----+                       | hooks
//     lab 09  buckets ---------------------------+
//     lab 06  ring ---------------> averages                 in a thread, concurrent with backward
//     lab 04  optimizer ----------> the same step            on every rank
//
// All of it is yours: work/01-tensors, work/03-autograd and so on. (LAB03=ref uses the course's lab
// 03 instead, but forfeits the points of the tests that require your own lab 03.)
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

// ---- part 1: a model on your tensors and your tape ----

// Given. tensor_of() copies numbers into a new tensor, row by row; numbers_of() copies any tensor's
// elements out in logical order.
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

// Task 1. Returns c with c(i, j) = sum over k of a(i, k) b(k, j). a and b have two dimensions and
// may be any views (a transpose, a column of another tensor), which can be read without a copy.
// Refuses unequal inner sizes with lab01::refuse.
inline Tensor matmul(const Tensor& a, const Tensor& b) {
#ifdef SOLUTION
  if (a.dim() != 2 || b.dim() != 2 || a.sizes()[1] != b.sizes()[0])
    lab01::refuse("matmul: sizes " + lab01::text(a.sizes()) + " and " + lab01::text(b.sizes()));
  Tensor c = Tensor::empty({a.sizes()[0], b.sizes()[1]});
  for (std::int64_t i = 0; i < a.sizes()[0]; ++i)
    for (std::int64_t j = 0; j < b.sizes()[1]; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < a.sizes()[1]; ++k)
        sum += a.storage().read(a.offset() + i * a.strides()[0] + k * a.strides()[1]) *
               b.storage().read(b.offset() + k * b.strides()[0] + j * b.strides()[1]);
      c.storage().write(i * b.sizes()[1] + j, sum);
    }
  return c;
#else
  (void)a, (void)b;
  kit::todo("task 1, matmul");
#endif
}

// Task 2. Returns y = x W^T + b, recorded on your tape. x is rows by in, weight is out by in, bias
// has out elements, y is rows by out; all are stored row by row.
inline Var linear(const Var& x, const Var& weight, const Var& bias, std::int64_t rows) {
#ifdef SOLUTION
  const auto outs = std::int64_t(lab03::value(bias).size());
  const std::int64_t ins = std::int64_t(lab03::value(weight).size()) / outs;
  const Tensor w = tensor_of(lab03::value(weight), {outs, ins});
  Tensor y = matmul(tensor_of(lab03::value(x), {rows, ins}), w.transpose(0, 1));
  y.add_(tensor_of(lab03::value(bias), {outs}));
  return lab03::record(
      numbers_of(y), {x, weight, bias},
      [=](const std::vector<Var>& inputs, std::size_t input, const Values& grad) {
        const Tensor dy = tensor_of(grad, {rows, outs});
        if (input == 0) return numbers_of(matmul(dy, w));
        if (input == 1)
          return numbers_of(
              matmul(dy.transpose(0, 1), tensor_of(lab03::value(inputs[0]), {rows, ins})));
        Values sums;
        for (std::int64_t o = 0; o < outs; ++o) sums.push_back(dy.select(1, o).sum());
        return sums;
      });
#else
  (void)x, (void)weight, (void)bias, (void)rows;
  kit::todo("task 2, linear");
#endif
}

// Task 2. y(r, j) = z(r, j) - log(sum over k of exp z(r, k)), recorded. The result is finite for
// finite logits and correct for large ones: two logits of 1e17 give log 1/2 each.
inline Var log_softmax(const Var& logits, std::int64_t rows) {
#ifdef SOLUTION
  Values y = lab03::value(logits);
  const std::size_t classes = y.size() / std::size_t(rows);
  for (std::size_t first = 0; first < y.size(); first += classes) {
    const std::span<double> row(y.data() + first, classes);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double z : row) sum += std::exp(z - largest);
    for (double& z : row) z = z - largest - std::log(sum);
  }
  return lab03::record(y, {logits}, [y, classes](const auto&, std::size_t, const Values& grad) {
    Values out = grad;
    for (std::size_t first = 0; first < y.size(); first += classes) {
      double all = 0;
      for (std::size_t j = first; j < first + classes; ++j) all += grad[j];
      for (std::size_t j = first; j < first + classes; ++j) out[j] -= std::exp(y[j]) * all;
    }
    return out;
  });
#else
  (void)logits, (void)rows;
  kit::todo("task 2, log_softmax");
#endif
}

// Lab 04's model (the same widths, parameters and names), computed by labs 01 and 03.
class Model {
 public:
  // Given, up to learn().
  explicit Model(const std::vector<std::size_t>& widths) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      for (const std::size_t count : {widths[i] * widths[i + 1], widths[i + 1]})
        owned_.push_back(std::make_unique<Parameter>(count));
      owned_[2 * i]->name = "linear" + std::to_string(i) + ".weight";
      owned_[2 * i + 1]->name = "linear" + std::to_string(i) + ".bias";
    }
  }
  // These three functions make this class a model for lab 09 (labs/kit/training.hpp).
  [[nodiscard]] std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all;
    for (const auto& p : owned_) all.push_back(p.get());
    return all;
  }
  void on_gradient(Parameter* p, std::function<void()> hook) {
    p->hooks.push_back(std::move(hook));
  }
  void on_backward_end(std::function<void()> callback) { ends_.push_back(std::move(callback)); }

  // Task 3. Runs forward and backward of one batch: linear layers with a relu between adjacent
  // ones, and the mean of -log_softmax at the targets. Returns the loss. Adds d loss / d p to the
  // .grad of every parameter that is not frozen. A parameter's hooks run as soon as its gradient is
  // complete, while your tape still works on the layers below; the end-of-backward callbacks run
  // last. (labs/04-modules: Parameter defines "frozen" and complete().)
  double learn(const Matrix& x, const Targets& targets) {
#ifdef SOLUTION
    const auto rows = std::int64_t(x.rows);
    const auto watched = [](Parameter* p) {
      Var v = lab03::leaf(Values(p->value.begin(), p->value.end()), p->requires_grad);
      lab03::on_grad(v, [p](const Var& leaf) {
        const Values& grad = *lab03::grad(leaf);
        for (std::size_t i = 0; i < grad.size(); ++i) p->grad[i] += float(grad[i]);
        p->complete();
      });
      return v;
    };
    Var h = lab03::leaf(Values(x.data.begin(), x.data.end()), false);
    for (std::size_t k = 0; k < owned_.size(); k += 2)
      h = linear(k == 0 ? h : lab03::relu(h), watched(owned_[k].get()),
                 watched(owned_[k + 1].get()), rows);
    const Var logs = log_softmax(h, rows);
    Values share(lab03::value(logs).size());
    for (std::size_t r = 0; r < x.rows; ++r)
      share[r * share.size() / x.rows + std::size_t(targets[r])] = -1.0 / double(x.rows);
    const Var loss = lab03::sum(lab03::mul(logs, lab03::leaf(share, false)));
    lab03::backward(loss);
    for (const auto& end : ends_) end();
    return lab03::value(loss)[0];
#else
    (void)x, (void)targets;
    kit::todo("task 3, Model::learn");
#endif
  }

 private:
  std::vector<std::unique_ptr<Parameter>> owned_;
  std::vector<std::function<void()>> ends_;
};

// Given. Lab 04's model with its own backward, which computes the same gradients without a tape.
class ByHand : public lab04::MLP {
 public:
  using MLP::MLP;
  double learn(const Matrix& x, const Targets& targets) {
    const lab04::Loss loss = lab04::cross_entropy(forward(x), targets);
    backward(loss.grad);
    return double(loss.value);
  }
};

// ---- part 2: your ring as a group ----

// Given: your lab 06. The tests also use other rings, most of them wrong.
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

// Task 4. A group for lab 09 (labs/kit/training.hpp) on a link of lab 06. all_reduce() returns
// immediately; the ring runs in the thread. The group is the only user of the link, and a link
// serves one thread, so run every operation on the link in that thread, in the order of the calls.
// link and thread outlive this object.
template <class Ring, class Link>
class RingGroup {
 public:
  RingGroup(Link& link, kit::Background& thread) : link_(link), thread_(thread) {}
  [[nodiscard]] int rank() const { return link_.rank(); }
  [[nodiscard]] int world() const { return link_.world(); }

  kit::Background::Work all_reduce(std::span<float> data) {
#ifdef SOLUTION
    return thread_.run([this, data] { Ring::all_reduce(link_, data); });
#else
    (void)data;
    kit::todo("task 4, all_reduce");
#endif
  }

  // Copies the data of rank `root` bit for bit to every rank. Returns when `data` is complete.
  void broadcast(std::span<float> data, int root) {
#ifdef SOLUTION
    const int world = link_.world(), rank = link_.rank(), next = (rank + 1) % world;
    const auto pass_on = [=, this] {
      if (rank != root) link_.recv((rank + world - 1) % world, data);
      if (next != root) link_.send(next, data);
    };
    thread_.run(pass_on).wait();
#else
    (void)data, (void)root;
    kit::todo("task 4, broadcast");
#endif
  }

 private:
  [[maybe_unused]] Link& link_;
  [[maybe_unused]] kit::Background& thread_;
};

// Task 5. Returns the schedule of a ring's all-reduce: reduce-scatter, then all-gather.
template <class Ring>
kit::Schedule schedule_of(int world) {
#ifdef SOLUTION
  kit::Schedule schedule{world, world, {}};
  for (int r = 0; r < world; ++r) {
    schedule.steps.emplace_back();
    for (const bool adds : {true, false})
      for (int s = 0; s < world - 1; ++s) {
        const lab06::Step step =
            adds ? Ring::reduce_scatter_step(world, r, s) : Ring::all_gather_step(world, r, s);
        schedule.steps.back().push_back(
            {step.to, step.send_chunk, step.from, step.recv_chunk, adds});
      }
  }
  return schedule;
#else
  (void)world;
  kit::todo("task 5, schedule_of");
#endif
}

// ---- part 3: training ----

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

// Task 6. Trains steps 0 to settings.steps - 1, on every rank of link's world. After each step it
// calls log(step, loss): the mean loss of the step's whole batch, before the update, the same on
// all ranks.
//
// Before anything else it throws std::invalid_argument if kit::fault_of reports a fault in Ring's
// schedule for this world; the message contains the fault. It also throws std::invalid_argument
// if the batch is empty, is larger than the data, or cannot be divided equally among the ranks.
//
// Batches. Epoch e is lab 10's epoch e: all ranks together take the first `batch` places of its
// order, then the next `batch`, and so on. The rest of an epoch that does not fill a batch is
// dropped. Therefore N ranks and one rank see the same batches.
//
// Checkpoints. Rank 0, and no other rank, saves every save_every steps. If the vault holds a
// checkpoint, all ranks resume from it, whatever values their models have, and all results equal an
// uninterrupted run's bit for bit.
//
// model: Model or ByHand; optimizer: Sgd or AdamW of lab 04, for the model's parameters.
template <class Ring, class Link, class AnyModel, class Optimizer, class Log>
void train(Link& link, AnyModel& model, Optimizer& optimizer, const Data& data,
           const Settings& settings, kit::Vault& vault, Log&& log) {
#ifdef SOLUTION
  const std::int64_t world = link.world();
  const std::string fault = kit::fault_of(schedule_of<Ring>(link.world()));
  if (!fault.empty()) throw std::invalid_argument("train: this ring is wrong: " + fault);
  const auto samples = std::int64_t(data.targets.size());
  if (settings.batch < 1 || settings.batch % world != 0 || settings.batch > samples)
    throw std::invalid_argument("train: a batch of " + std::to_string(settings.batch) + " of " +
                                std::to_string(samples) + " samples for " + std::to_string(world) +
                                " ranks");
  // The vault holds the step, the parameters and the optimizer's state.
  std::int64_t step = 0;
  if (const std::vector<double> saved = vault.load(); !saved.empty()) {
    auto next = saved.begin();
    step = std::int64_t(*next++);
    for (Parameter* p : model.parameters())
      for (float& value : p->value) value = float(*next++);
    optimizer.load({next, saved.end()});
  }
  kit::Background thread;
  RingGroup<Ring, Link> group(link, thread);
  lab09::DistributedDataParallel ddp(model, group, settings.bucket_bytes);
  lab10::DistributedSampler sampler(samples, {int(world), link.rank(), true, settings.seed, true});
  const auto fetch = [&](std::span<const std::int64_t> wanted) {
    Batch batch{Matrix(wanted.size(), data.x.cols), {}};
    for (std::size_t r = 0; r < wanted.size(); ++r) {
      for (std::size_t c = 0; c < data.x.cols; ++c)
        batch.x(r, c) = data.x(std::size_t(wanted[r]), c);
      batch.targets.push_back(data.targets[std::size_t(wanted[r])]);
    }
    return batch;
  };
  const std::int64_t in_epoch = samples / settings.batch;
  while (step < settings.steps) {
    sampler.set_epoch(step / in_epoch, step % in_epoch * settings.batch);
    lab10::Loader<Batch> loader(sampler.indices(), {settings.batch / world, 1, 2, true}, fetch);
    std::optional<Batch> batch;
    while (step < settings.steps && (batch = loader.next())) {
      lab04::zero_grad(optimizer.parameters());
      std::vector<float> loss{float(model.learn(batch->x, batch->targets))};
      group.all_reduce(loss).wait();
      optimizer.step();
      log(step++, double(loss[0]) / double(world));
      if (settings.save_every == 0 || step % settings.save_every != 0 || link.rank() != 0) continue;
      std::vector<double> all{double(step)};
      for (const Parameter* p : model.parameters())
        all.insert(all.end(), p->value.begin(), p->value.end());
      const std::vector<double> state = optimizer.state();
      all.insert(all.end(), state.begin(), state.end());
      vault.save(all);
    }
  }
#else
  (void)link, (void)model, (void)optimizer, (void)data, (void)settings, (void)vault, (void)log;
  kit::todo("task 6, train");
#endif
}

// Task 7. Predicts, without measuring, when the last of these all-reduces is complete. Bucket k has
// elements[k] floats and is full ready[k] seconds after the start of backward. The ring carries one
// bucket at a time, in this order. Use your lab 05.
inline double predicted_end(const lab05::Machine& machine, int world, std::span<const double> ready,
                            std::span<const std::size_t> elements) {
#ifdef SOLUTION
  double end = 0;
  for (std::size_t k = 0; k < ready.size(); ++k)
    end = std::max(end, ready[k]) + lab05::ring_time(machine, {world, elements[k], sizeof(float)});
  return end;
#else
  (void)machine, (void)world, (void)ready, (void)elements;
  kit::todo("task 7, predicted_end");
#endif
}

}  // namespace lab13
