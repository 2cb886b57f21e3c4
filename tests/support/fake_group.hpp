// One rank of a group whose other ranks do not exist. Records the calls; the test provides the data
// that peers would send.
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

  // The calls in order: "all_reduce(4 f32)", "wait", "all_gather", ...
  std::vector<std::string> log;
  // Called when an all-reduce is waited for, or a broadcast is called; changes the data as peers
  // would.
  std::function<void(comm::Buffer)> on_all_reduce, on_broadcast;
  // Called after this rank's part has been copied to every rank's position.
  std::function<void(comm::Buffer output)> on_all_gather;
  Bytes allocated;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_; }
  std::shared_ptr<comm::CommMemory> allocate(Bytes size) override {
    allocated += size;
    return std::make_shared<HeapMemory>(size);
  }

  comm::WorkPtr submit(const comm::Transfer& transfer) override {
    const comm::Buffer out = transfer.output;
    switch (transfer.call.collective) {
      case comm::Collective::all_reduce:
        log.push_back("all_reduce(" + std::to_string(out.count().value) + " " +
                      std::string(name_of(out.dtype())) + ")");
        return later([this, out] {
          if (on_all_reduce) on_all_reduce(out);
        });
      case comm::Collective::all_gather:
        log.emplace_back("all_gather");
        for (int r = 0; r < world_; ++r)
          std::memcpy(out.data() + static_cast<std::size_t>(r) * transfer.input.size().value,
                      transfer.input.data(), transfer.input.size().value);
        if (on_all_gather) on_all_gather(out);
        return later({});
      case comm::Collective::broadcast:
        log.emplace_back("broadcast");
        if (on_broadcast) on_broadcast(out);
        return later({});
      case comm::Collective::barrier:
        return later({});
      default:
        throw Error("FakeGroup: an unexpected collective");
    }
  }

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

  int world_, rank_;
  comm::GroupOptions options_;
};

}  // namespace ringsmith::test
