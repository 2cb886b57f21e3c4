// Unusual and correct: one flat array holds all gradients, and buckets are ranges of it. There are
// no counts: go() checks anew which buckets may start. The division follows the sum. The flags
// (which parameters had a gradient) follow the gradients in the last bucket.
#pragma once

#include <cstddef>
#include <map>
#include <numeric>
#include <vector>

#include "labs/kit/training.hpp"

namespace lab09 {

inline std::vector<std::vector<int>> plan_buckets(const std::vector<std::size_t>& bytes,
                                                  std::size_t limit) {
  std::vector<std::vector<int>> plan;
  std::vector<int> open;
  std::size_t sum = 0;
  for (int i = 0; i < int(bytes.size()); ++i) {
    open.push_back(i);
    sum += bytes[std::size_t(i)];
    if (sum < limit) continue;
    plan.push_back(open);
    open.clear();
    sum = 0;
  }
  if (!open.empty()) plan.push_back(open);
  return plan;
}

template <class Model, class Group>
class DistributedDataParallel {
  using Tensor = kit::ParameterOf<Model>;
  using Work = kit::WorkOf<Group>;

 public:
  DistributedDataParallel(Model& model, Group& group, std::size_t bucket_bytes) : group_(group) {
    std::map<const void*, bool> known;
    std::vector<Tensor> trained;
    for (const Tensor& p : model.parameters())
      if (!known[&*p]) {
        known[&*p] = true;
        group.broadcast(p->value, 0);
        if (p->requires_grad) trained.insert(trained.begin(), p);
      }
    std::vector<std::size_t> bytes;
    for (const Tensor& p : trained) bytes.push_back(4 * p->value.size());
    parameters_ = trained;
    came_.assign(trained.size(), false);
    std::size_t at = 0;
    for (const Tensor& p : trained) {
      begins_.push_back(at);
      at += p->value.size();
    }
    flat_.resize(at + trained.size());  // after the gradients: the flags
    flags_ = at;
    for (const std::vector<int>& bucket : plan_buckets(bytes, bucket_bytes)) {
      const auto first = std::size_t(bucket.front()), last = std::size_t(bucket.back());
      ranges_.push_back({first, last, begins_[first], begins_[last] + trained[last]->value.size()});
    }
    if (!ranges_.empty()) ranges_.back().end = flat_.size();
    for (std::size_t i = 0; i < trained.size(); ++i)
      model.on_gradient(trained[i], [this, i] {
        if (local_ == 0) put(i), go(false);
      });
    model.on_backward_end([this] {
      if (local_ == 0) finish();
    });
  }
  DistributedDataParallel(const DistributedDataParallel&) = delete;

  template <class Body>
  void no_sync(Body&& body) {
    ++local_;
    try {
      body();
    } catch (...) {
      --local_;
      throw;
    }
    --local_;
  }

 private:
  struct Range {
    std::size_t first, last, begin, end;
  };
  void put(std::size_t i) {
    const std::vector<float>& grad = parameters_[i]->grad;
    for (std::size_t k = 0; k < parameters_[i]->value.size(); ++k)
      flat_[begins_[i] + k] = k < grad.size() ? grad[k] : 0.0F;
    came_[i] = true;
  }
  // The last bucket carries the flags, which are known when backward is over.
  void go(bool over) {
    while (works_.size() < ranges_.size()) {
      const Range& range = ranges_[works_.size()];
      const bool is_last = works_.size() + 1 == ranges_.size();
      for (std::size_t i = range.first; i <= range.last; ++i)
        if (!came_[i]) return;
      if (is_last && !over) return;
      works_.push_back(
          group_.all_reduce(std::span<float>(flat_).subspan(range.begin, range.end - range.begin)));
    }
  }
  void finish() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!came_[i]) put(i);
      flat_[flags_ + i] = parameters_[i]->grad.empty() ? 0.0F : 1.0F;
    }
    go(true);
    for (Work& work : works_) work.wait();
    works_.clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      came_[i] = false;
      if (flat_[flags_ + i] < 0.5F) continue;
      std::vector<float>& grad = parameters_[i]->grad;
      grad.resize(parameters_[i]->value.size());
      for (std::size_t k = 0; k < grad.size(); ++k)
        grad[k] = flat_[begins_[i] + k] / float(group_.world());
    }
  }

  Group& group_;
  std::vector<Tensor> parameters_;
  std::vector<bool> came_;
  std::vector<std::size_t> begins_;
  std::vector<float> flat_;
  std::size_t flags_ = 0;
  std::vector<Range> ranges_;
  std::vector<Work> works_;
  int local_ = 0;
};

}  // namespace lab09
