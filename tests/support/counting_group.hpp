#pragma once

#include <algorithm>
#include <memory>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

class CountingGroup : public comm::ProcessGroup {
 public:
  explicit CountingGroup(std::shared_ptr<comm::ProcessGroup> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::size_t live() const { return counter_->live; }  // bytes
  [[nodiscard]] std::size_t peak() const { return counter_->peak; }

  std::shared_ptr<comm::CommMemory> allocate(Bytes size) override {
    return std::make_shared<Counted>(inner_->allocate(size), counter_);
  }

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  comm::WorkPtr submit(const comm::Transfer& transfer) override { return inner_->submit(transfer); }
  [[nodiscard]] const comm::GroupOptions& options() const override { return inner_->options(); }
  void set_algorithm(comm::Algorithm algorithm) override { inner_->set_algorithm(algorithm); }

 private:
  struct Counter {
    std::size_t live = 0, peak = 0;
  };
  class Counted : public comm::CommMemory {
   public:
    Counted(std::shared_ptr<comm::CommMemory> inner, std::shared_ptr<Counter> counter)
        : inner_(std::move(inner)), counter_(std::move(counter)) {
      counter_->live += inner_->size().value;
      counter_->peak = std::max(counter_->peak, counter_->live);
    }
    ~Counted() override { counter_->live -= inner_->size().value; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    [[nodiscard]] std::byte* data() const override { return inner_->data(); }
    [[nodiscard]] Bytes size() const override { return inner_->size(); }

   private:
    std::shared_ptr<comm::CommMemory> inner_;
    std::shared_ptr<Counter> counter_;
  };

  std::shared_ptr<comm::ProcessGroup> inner_;
  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
};

}  // namespace ringsmith::test
