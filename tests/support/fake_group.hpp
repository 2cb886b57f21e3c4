// One rank of a group whose other ranks do not exist: what the code under test calls is written
// down, and the test decides what the peers would have sent.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

class HeapMemory : public comm::CommMemory {
 public:
  explicit HeapMemory(Bytes size)
      : size_(size),
        data_(static_cast<std::byte*>(std::aligned_alloc(64, (size.value + 64) / 64 * 64))) {
    std::memset(data_, 0, size.value);
  }
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;
  ~HeapMemory() override { std::free(data_); }
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] Bytes size() const override { return size_; }

 private:
  Bytes size_;
  std::byte* data_;
};

class FakeGroup : public comm::ProcessGroup {
 public:
  explicit FakeGroup(int world = 1, int rank = 0) : world_(world), rank_(rank) {}

  // "all_reduce(4 f32)", "wait", "all_gather", ... in the order of the calls.
  std::vector<std::string> log;
  // Called when an all-reduce or a broadcast is waited for; changes the data as peers would.
  std::function<void(comm::Buffer)> on_all_reduce, on_broadcast;
  // Called after this rank's part has been copied to every rank's place in the output.
  std::function<void(comm::Buffer output)> on_all_gather;
  Bytes allocated;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_; }
  std::shared_ptr<comm::CommMemory> allocate(Bytes size) override {
    allocated += size;
    return std::make_shared<HeapMemory>(size);
  }

  comm::WorkPtr all_reduce_async(comm::ConstBuffer, comm::Buffer out, comm::ReduceOp) override {
    log.push_back("all_reduce(" + std::to_string(out.count().value) + " " +
                  std::string(name_of(out.dtype())) + ")");
    return later([this, out] {
      if (on_all_reduce) on_all_reduce(out);
    });
  }
  comm::WorkPtr all_gather_async(comm::ConstBuffer in, comm::Buffer out) override {
    log.emplace_back("all_gather");
    for (int r = 0; r < world_; ++r)
      std::memcpy(out.data() + static_cast<std::size_t>(r) * in.size().value, in.data(),
                  in.size().value);
    if (on_all_gather) on_all_gather(out);
    return later({});
  }
  comm::WorkPtr broadcast_async(comm::Buffer data, int) override {
    log.emplace_back("broadcast");
    if (on_broadcast) on_broadcast(data);
    return later({});
  }
  comm::WorkPtr barrier_async(comm::Site) override { return later({}); }

  comm::WorkPtr reduce_scatter_async(comm::ConstBuffer, comm::Buffer, comm::ReduceOp) override {
    return unexpected();
  }
  comm::WorkPtr reduce_async(comm::ConstBuffer, comm::Buffer, comm::ReduceOp, int) override {
    return unexpected();
  }
  comm::WorkPtr gather_async(comm::ConstBuffer, comm::Buffer, int) override { return unexpected(); }
  comm::WorkPtr scatter_async(comm::ConstBuffer, comm::Buffer, int) override {
    return unexpected();
  }
  comm::WorkPtr all_to_all_async(comm::ConstBuffer, comm::Buffer) override { return unexpected(); }
  comm::WorkPtr send_async(comm::ConstBuffer, int) override { return unexpected(); }
  comm::WorkPtr recv_async(comm::Buffer, int) override { return unexpected(); }

  [[nodiscard]] const comm::GroupOptions& options() const override { return options_; }
  void set_algorithm(comm::Algorithm algorithm) override { options_.algorithm = algorithm; }

 private:
  class Later : public comm::Work {
   public:
    Later(std::vector<std::string>& log, std::function<void()> finish)
        : log_(log), finish_(std::move(finish)) {}
    [[nodiscard]] bool is_completed() const override { return done_; }
    void wait() override {
      if (done_) return;
      done_ = true;
      if (finish_) {
        log_.emplace_back("wait");
        finish_();
      }
    }

   private:
    std::vector<std::string>& log_;
    std::function<void()> finish_;
    bool done_ = false;
  };

  comm::WorkPtr later(std::function<void()> finish) {
    return std::make_shared<Later>(log, std::move(finish));
  }
  static comm::WorkPtr unexpected() { throw Error("FakeGroup: an unexpected collective"); }

  int world_, rank_;
  comm::GroupOptions options_;
};

}  // namespace ringsmith::test
