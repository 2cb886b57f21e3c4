// A group that does what another does, and counts the communication memory that is alive.
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
  comm::WorkPtr all_reduce_async(comm::ConstBuffer in, comm::Buffer out,
                                 comm::ReduceOp op) override {
    return inner_->all_reduce_async(in, out, op);
  }
  comm::WorkPtr reduce_scatter_async(comm::ConstBuffer in, comm::Buffer out,
                                     comm::ReduceOp op) override {
    return inner_->reduce_scatter_async(in, out, op);
  }
  comm::WorkPtr all_gather_async(comm::ConstBuffer in, comm::Buffer out) override {
    return inner_->all_gather_async(in, out);
  }
  comm::WorkPtr broadcast_async(comm::Buffer data, int root) override {
    return inner_->broadcast_async(data, root);
  }
  comm::WorkPtr reduce_async(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op,
                             int root) override {
    return inner_->reduce_async(in, out, op, root);
  }
  comm::WorkPtr gather_async(comm::ConstBuffer in, comm::Buffer out, int root) override {
    return inner_->gather_async(in, out, root);
  }
  comm::WorkPtr scatter_async(comm::ConstBuffer in, comm::Buffer out, int root) override {
    return inner_->scatter_async(in, out, root);
  }
  comm::WorkPtr all_to_all_async(comm::ConstBuffer in, comm::Buffer out) override {
    return inner_->all_to_all_async(in, out);
  }
  comm::WorkPtr send_async(comm::ConstBuffer data, int peer) override {
    return inner_->send_async(data, peer);
  }
  comm::WorkPtr recv_async(comm::Buffer data, int peer) override {
    return inner_->recv_async(data, peer);
  }
  comm::WorkPtr barrier_async(comm::Site site) override { return inner_->barrier_async(site); }
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
