// Unusual and correct: each bucket is a separate object that knows its successor and lets it start
// next. Gradients are multiplied by 1/N instead of divided. end() waits for the flags first, and
// then for the buckets from the last to the first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "labs/kit/training.hpp"

namespace lab09 {

inline std::vector<std::vector<int>> plan_buckets(const std::vector<std::size_t>& bytes,
                                                  std::size_t limit) {
  std::vector<std::vector<int>> plan;
  std::size_t room = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (room == 0) {
      plan.push_back({});
      room = limit;
    }
    plan.back().push_back(int(i));
    room -= std::min(room, bytes[i]);
  }
  return plan;
}

template <class Tensor, class Group>
class BucketOfOne {  // one bucket, of any number of parameters
 public:
  explicit BucketOfOne(Group& group) : group_(group) {}
  void add(const Tensor& parameter) { members_.push_back(parameter); }
  void then(BucketOfOne* next) { next_ = next; }
  void give_turn() {
    turn_ = true;
    try_to_start();
  }
  void complete(const Tensor& parameter) {
    complete_.insert(&*parameter);
    try_to_start();
  }
  void complete_all() {
    for (const Tensor& parameter : members_) complete_.insert(&*parameter);
    try_to_start();
  }
  void collect(const std::function<bool(const Tensor&)>& used) {
    work_->wait();
    auto from = sum_.begin();
    for (const Tensor& parameter : members_) {
      const auto to = from + std::ptrdiff_t(parameter->value.size());
      if (used(parameter)) parameter->grad.assign(from, to);
      from = to;
    }
    sum_.clear();
    complete_.clear();
    work_.reset();
    turn_ = false;
  }

 private:
  void try_to_start() {
    if (!turn_ || work_ || complete_.size() < members_.size()) return;
    const float share = 1.0F / float(group_.world());
    for (const Tensor& parameter : members_)
      for (std::size_t i = 0; i < parameter->value.size(); ++i)
        sum_.push_back(parameter->grad.empty() ? 0.0F : parameter->grad[i] * share);
    work_ = group_.all_reduce(sum_);
    if (next_ != nullptr) next_->give_turn();
  }
  Group& group_;
  std::vector<Tensor> members_;
  std::set<const void*> complete_;
  std::vector<float> sum_;
  std::optional<kit::WorkOf<Group>> work_;
  BucketOfOne* next_ = nullptr;
  bool turn_ = false;
};

template <class Model, class Group>
class DistributedDataParallel {
  using Tensor = kit::ParameterOf<Model>;
  using Bucket = BucketOfOne<Tensor, Group>;

 public:
  DistributedDataParallel(Model& model, Group& group, std::size_t bucket_bytes) : group_(group) {
    for (const Tensor& p : model.parameters())
      if (std::none_of(all_.begin(), all_.end(), [&](const auto& q) { return q == p; }))
        all_.push_back(p);
    for (const Tensor& p : all_) group.broadcast(p->value, 0);
    std::erase_if(all_, [](const Tensor& p) { return !p->requires_grad; });
    const std::vector<Tensor> backwards(all_.rbegin(), all_.rend());
    std::vector<std::size_t> bytes;
    for (const Tensor& p : backwards) bytes.push_back(sizeof(float) * p->value.size());
    for (const auto& plan : plan_buckets(bytes, bucket_bytes)) {
      Bucket& bucket = chain_.emplace_back(group);
      if (chain_.size() > 1) chain_[chain_.size() - 2].then(&bucket);
      for (const int i : plan) {
        const Tensor& p = backwards[std::size_t(i)];
        bucket.add(p);
        model.on_gradient(p, [this, &bucket, p] {
          if (!synchronises_) return;
          begin();
          bucket.complete(p);
        });
      }
    }
    model.on_backward_end([this] {
      if (synchronises_) end();
    });
  }
  DistributedDataParallel(const DistributedDataParallel&) = delete;

  template <class Body>
  void no_sync(Body&& body) {
    const auto restore = [before = synchronises_, this](int*) { synchronises_ = before; };
    int token = 0;
    const std::unique_ptr<int, decltype(restore)> at_exit(&token, restore);
    synchronises_ = false;
    body();
  }

 private:
  void begin() {
    if (!begun_ && !chain_.empty()) chain_.front().give_turn();
    begun_ = true;
  }
  void end() {
    begin();
    for (Bucket& bucket : chain_) bucket.complete_all();
    std::vector<float> flags;
    for (const Tensor& p : all_) flags.push_back(p->grad.empty() ? 0.0F : 1.0F);
    group_.all_reduce(flags).wait();
    const auto used = [&](const Tensor& p) {
      return flags[std::size_t(std::find(all_.begin(), all_.end(), p) - all_.begin())] > 0.0F;
    };
    for (auto bucket = chain_.rbegin(); bucket != chain_.rend(); ++bucket) bucket->collect(used);
    begun_ = false;
  }

  Group& group_;
  std::vector<Tensor> all_;
  std::deque<Bucket> chain_;  // a deque, because the hooks hold references to its elements
  bool synchronises_ = true;
  bool begun_ = false;
};

}  // namespace lab09
