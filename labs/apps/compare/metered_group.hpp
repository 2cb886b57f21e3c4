// Forwards to another process group, and counts the bytes that this rank sends and the
// communication memory that it allocates.
//
// The bytes are computed from this rank's steps in the schedule of each call, regardless of how the
// steps are executed. The schedule must be known, so an all-reduce with Algorithm::automatic throws
// UsageError.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::apps {

class MeteredGroup : public comm::ProcessGroup {
 public:
  explicit MeteredGroup(std::shared_ptr<comm::ProcessGroup> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] Bytes sent() const { return sent_; }
  [[nodiscard]] Bytes sent_by_all_reduces() const { return by_all_reduces_; }  // part of sent()
  void reset_sent() { sent_ = by_all_reduces_ = Bytes(0); }
  [[nodiscard]] Bytes memory() const { return *memory_; }

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] int ranks_on_machine() const override { return inner_->ranks_on_machine(); }
  [[nodiscard]] Device device() const override { return inner_->device(); }
  [[nodiscard]] const comm::GroupOptions& options() const override { return inner_->options(); }
  void set_algorithm(comm::Algorithm algorithm) override { inner_->set_algorithm(algorithm); }
  [[nodiscard]] std::vector<std::string> describe_transport() const override {
    return inner_->describe_transport();
  }
  std::shared_ptr<comm::CommMemory> allocate(Bytes size) override {
    return std::make_shared<Counted>(inner_->allocate(size), memory_);
  }
  std::shared_ptr<comm::CommMemory> allocate_on(Device where, Bytes size) override {
    return std::make_shared<Counted>(inner_->allocate_on(where, size), memory_);
  }

  comm::WorkPtr submit(const comm::Transfer& transfer) override {
    const comm::Call& call = transfer.call;
    if (call.collective == comm::Collective::all_reduce) {
      require(options().algorithm != comm::Algorithm::automatic,
              "MeteredGroup: choose an all-reduce algorithm other than automatic, so that its "
              "bytes can be counted");
      count(call, options().algorithm);
    } else if (call.collective == comm::Collective::send) {
      sent_ += transfer.input.size();
    } else if (call.collective != comm::Collective::recv &&
               call.collective != comm::Collective::barrier) {
      count(call, comm::algorithms_of(call.collective).front());
    }
    return inner_->submit(transfer);
  }
  void abort(comm::Site site) override { inner_->abort(site); }
  void keep_flight_in(const std::string& folder) override { inner_->keep_flight_in(folder); }

 private:
  class Counted : public comm::CommMemory {
   public:
    Counted(std::shared_ptr<comm::CommMemory> inner, std::shared_ptr<Bytes> total)
        : inner_(std::move(inner)), total_(std::move(total)) {
      *total_ += inner_->size();
    }
    ~Counted() override { *total_ = *total_ - inner_->size(); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    [[nodiscard]] std::byte* data() const override { return inner_->data(); }
    [[nodiscard]] Bytes size() const override { return inner_->size(); }
    [[nodiscard]] Device device() const override { return inner_->device(); }

   private:
    std::shared_ptr<comm::CommMemory> inner_;
    std::shared_ptr<Bytes> total_;
  };

  void count(const comm::Call& call, comm::Algorithm algorithm) {
    const std::size_t element = size_of(call.dtype), elements = call.work_count(size());
    const int root = std::max(call.root, 0);
    const auto [known, fresh] = sends_.try_emplace({call.collective, elements, element, root});
    if (fresh) {
      const comm::Schedule schedule =
          make_schedule(call.collective, algorithm, size(), elements, element, root);
      for (const comm::Step& step : schedule.steps[static_cast<std::size_t>(rank())])
        if (step.sends() && step.send_peer != rank())
          known->second +=
              bytes_of(Elements(message_count(schedule, step.send_chunk, step.chunks)), element);
    }
    sent_ += known->second;
    if (call.collective == comm::Collective::all_reduce) by_all_reduces_ += known->second;
  }

  std::shared_ptr<comm::ProcessGroup> inner_;
  std::shared_ptr<Bytes> memory_ = std::make_shared<Bytes>();
  Bytes sent_, by_all_reduces_;
  std::map<std::tuple<comm::Collective, std::size_t, std::size_t, int>, Bytes> sends_;
};

}  // namespace ringsmith::apps
