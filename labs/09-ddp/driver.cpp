// Runs the student's DDP on the kit's cluster.
//
// The judge describes the model (sizes, frozen, tied), the arrival of its gradients on each rank,
// and a script with one letter per action:
//
//   z  delete all gradients
//   s  backward, synchronising
//   n  backward under no_sync
//   m  no_sync, with a nested no_sync and then a backward inside
//   u  like m, but the inner body throws
//   t  like n, but the body throws; then delete all gradients
//   i  like t, but the body throws an int
//   o  momentum step
//   c  count collectives and time from here on
#include LAB09_DDP

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <stdexcept>

#include "labs/kit/cluster/cluster.hpp"
#include "labs/kit/toy_model.hpp"

namespace {

using kit::Tensor;

std::string of_rank(const char* what, int rank) { return what + ("." + std::to_string(rank)); }

// Returns a whole number, so that sums are exact. public.py has the same formula.
float made_up(std::int64_t step, std::int64_t rank, std::size_t p, std::size_t i,
              std::int64_t base) {
  return float((std::int64_t(i) * 7 + std::int64_t(p) * 13 + rank * 29 + step * 31 + base) % 41 -
               20);
}

class Replica {
 public:
  Replica(const kit::Request& in, kit::Cluster& cluster, int rank)
      : in_(in), cluster_(cluster), rank_(rank), seconds_(in.numbers("seconds")) {
    const std::vector<std::int64_t> sizes = in.integers("sizes"), frozen = in.integers("frozen");
    const auto again = in.integer("tied_after", std::int64_t(sizes.size()) - 1);
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      auto parameter = std::make_shared<kit::Parameter>();
      parameter->name = "layer" + std::to_string(p) + ".weight";
      parameter->requires_grad = frozen[p] == 0;
      for (std::size_t i = 0; i < std::size_t(sizes[p]); ++i)
        parameter->value.push_back(made_up(77, rank, p, i, base()));
      parameters_.push_back(parameter);
      velocity_.emplace_back(parameter->value.size());
      model_.list(parameter);
      if (again != std::int64_t(p)) continue;
      for (const std::int64_t q : in.integers("tied")) model_.list(parameters_[std::size_t(q)]);
    }
  }
  kit::ToyModel& model() { return model_; }

  void backward() {
    const std::string own = of_rank("order", rank_) + "." + std::to_string(step_);
    std::vector<std::int64_t> left = in_.integers(in_.has(own) ? own : of_rank("order", rank_));
    for (std::size_t at = 0; at < left.size(); ++at) {
      const auto p = std::size_t(left[at]);
      const auto part = std::count(left.begin(), left.begin() + std::ptrdiff_t(at), left[at]);
      const bool last = std::count(left.begin() + std::ptrdiff_t(at), left.end(), left[at]) == 1;
      const std::vector<double> speed = in_.numbers("speed");
      cluster_.compute(rank_, seconds_[p] * speed[std::size_t(rank_)]);
      std::vector<float> gradient;
      const std::vector<float>& value = parameters_[p]->value;
      for (std::size_t i = 0; i < value.size(); ++i)
        gradient.push_back(made_up(step_, rank_, p, i, base()) + float(part) +
                           coupling() * value[i]);
      if (in_.integer("poisoned_rank", -1) == rank_ && !gradient.empty())
        gradient.back() = float(in_.number("poison"));
      model_.arrive(parameters_[p], gradient, last);
    }
    model_.end_backward();
    ++step_;
  }

  void zero_grad() {
    for (const Tensor& parameter : parameters_) parameter->grad.clear();
  }
  void momentum_step() {
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      for (std::size_t i = 0; i < parameters_[p]->grad.size(); ++i) {
        velocity_[p][i] = 0.5F * velocity_[p][i] + parameters_[p]->grad[i];
        parameters_[p]->value[i] -= 0.25F * velocity_[p][i];
      }
  }
  void observe(kit::Observation& out) const {
    std::vector<float> values, grads;
    std::vector<std::int64_t> has;
    for (const Tensor& parameter : parameters_) {
      values.insert(values.end(), parameter->value.begin(), parameter->value.end());
      grads.insert(grads.end(), parameter->grad.begin(), parameter->grad.end());
      has.push_back(parameter->grad.empty() ? 0 : std::int64_t(parameter->grad.size()));
    }
    out.put(of_rank("values", rank_), values);
    out.put(of_rank("grads", rank_), grads);
    out.put(of_rank("has", rank_), has);
  }

 private:
  [[nodiscard]] std::int64_t base() const { return in_.integer("base", 0); }
  [[nodiscard]] float coupling() const { return float(in_.number("coupling", 0)); }
  const kit::Request& in_;
  kit::Cluster& cluster_;
  int rank_;
  std::vector<double> seconds_;
  std::vector<Tensor> parameters_;
  std::vector<std::vector<float>> velocity_;
  kit::ToyModel model_;
  std::int64_t step_ = 0;
};

// The same model and group with other types: handles are plain pointers, as in lab 04.
class PointerModel {
 public:
  explicit PointerModel(kit::ToyModel& toy) : toy_(toy) {}
  [[nodiscard]] std::vector<kit::Parameter*> parameters() const {
    std::vector<kit::Parameter*> all;
    for (const Tensor& parameter : toy_.parameters()) all.push_back(parameter.get());
    return all;
  }
  void on_gradient(kit::Parameter* parameter, std::function<void()> hook) {
    for (const Tensor& listed : toy_.parameters())
      if (listed.get() == parameter) return toy_.on_gradient(listed, std::move(hook));
  }
  void on_backward_end(std::function<void()> callback) {
    toy_.on_backward_end(std::move(callback));
  }

 private:
  kit::ToyModel& toy_;
};
struct OtherWork {
  kit::Work work;
  void wait() { work.wait(); }
};
class OtherGroup {
 public:
  explicit OtherGroup(kit::Group& group) : group_(group) {}
  [[nodiscard]] int rank() const { return group_.rank(); }
  [[nodiscard]] int world() const { return group_.world(); }
  [[nodiscard]] OtherWork all_reduce(std::span<float> data) { return {group_.all_reduce(data)}; }
  void broadcast(std::span<float> data, int root) { group_.broadcast(data, root); }

 private:
  kit::Group& group_;
};

struct BatchIsBroken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Ddp>
void perform(char deed, Replica& replica, Ddp& ddp, kit::Cluster& cluster, int rank) {
  const auto local = [&] { replica.backward(); };
  if (deed == 'z') replica.zero_grad();
  if (deed == 'c') cluster.count_from_here(rank);
  if (deed == 's') local();
  if (deed == 'n') ddp.no_sync(local);
  if (deed == 'm')
    ddp.no_sync([&] {
      ddp.no_sync(local);
      local();
    });
  if (deed == 'u')
    ddp.no_sync([&] {
      try {
        ddp.no_sync([&] {
          local();
          throw BatchIsBroken("a broken batch inside");
        });
      } catch (const BatchIsBroken&) {
      }
      local();
    });
  if (deed == 't') try {
      ddp.no_sync([&] {
        local();
        throw BatchIsBroken("a broken batch");
      });
    } catch (const BatchIsBroken&) {
      replica.zero_grad();
    }
  if (deed == 'i') try {
      ddp.no_sync([&] {
        local();
        throw rank;
      });
    } catch (int) {
      replica.zero_grad();
    }
  if (deed == 'o') replica.momentum_step();
  cluster.end_of_step(rank);
}

}  // namespace

KIT_SCENARIO(train) {
  const auto limit = std::size_t(in.integer("bucket_bytes"));
  const std::string script = in.text("script");
  kit::Cluster cluster(kit::cluster_options(in));
  cluster.run([&](kit::Group& group) {
    Replica replica(in, cluster, group.rank());
    // first, DDP wraps another model that has the same parameters
    if (in.integer("again", 0) != 0) {
      kit::ToyModel earlier = replica.model();
      const lab09::DistributedDataParallel ddp(earlier, group, limit);
    }
    const auto run = [&](auto& model, auto& ranks) {
      lab09::DistributedDataParallel ddp(model, ranks, limit);
      cluster.end_of_step(group.rank());
      for (const char deed : script) perform(deed, replica, ddp, cluster, group.rank());
    };
    if (in.integer("pointers", 0) != 0) {
      PointerModel model(replica.model());
      OtherGroup ranks(group);
      run(model, ranks);
    } else {
      run(replica.model(), group);
    }
    replica.observe(out);
  });
  cluster.observe(out);
}

KIT_SCENARIO(plan) {
  std::vector<std::size_t> bytes;
  for (const std::int64_t b : in.integers("bytes")) bytes.push_back(std::size_t(b));
  (void)lab09::plan_buckets({3, 4, 5}, 100);  // must not affect later calls
  std::vector<std::int64_t> flat;
  for (const std::vector<int>& bucket :
       lab09::plan_buckets(bytes, std::size_t(in.integer("limit")))) {
    flat.insert(flat.end(), bucket.begin(), bucket.end());
    flat.push_back(-1);  // the end of a bucket
  }
  out.put("buckets", flat);
}

// The run that scores 0 for overlap: all communication follows the computation. Uses no code of the
// student.
KIT_SCENARIO(serial) {
  kit::Cluster cluster(kit::cluster_options(in));
  cluster.run([&](kit::Group& group) {
    for (const double seconds : in.numbers("seconds")) cluster.compute(group.rank(), seconds);
    for (const std::int64_t size : in.integers("sizes")) {
      std::vector<float> data(static_cast<std::size_t>(size));
      group.all_reduce(data).wait();
    }
  });
  cluster.observe(out);
}
