// send and recv as in PyTorch: any order, any number in flight, matched by tag.
//
// The runtime's groups run one call at a time. With only one group, two ranks that both send first
// would wait for each other forever, and a receiver that takes tag 2 before tag 1 would also wait
// forever. Therefore each direction between two ranks has its own two-rank group, created at the
// first use, and its own thread:
//
//     rank 0   outgoing to 1  [ header | payload ][ header | payload ] ...  --> incoming from 0
//     rank 1   matches each header with a recv() of that tag, or keeps the message until there is
//              one
//
// Messages of one tag arrive in order. A receiver waits for the next message only while a recv() is
// pending; the group's deadline applies to this wait.
#pragma once

#include <ATen/ATen.h>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::pytorch {

// done(error) is called once, by post() or on the direction's thread; nullptr means success.
struct Message {
  at::Tensor tensor;
  int tag = 0;
  comm::Site site;
  std::function<void(std::exception_ptr)> done;
};

// One rank's end of a direction between two ranks. The direction's thread connects at the first
// use, because it may have to wait for the other rank.
class Direction {
 public:
  using Connect = std::function<std::shared_ptr<comm::ProcessGroup>()>;
  // words: for errors, "send to rank 2".
  Direction(std::string words, Connect connect)
      : words_(std::move(words)), connect_(std::move(connect)) {}
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;
  virtual ~Direction() = default;  // stop() must have been called

  void post(Message message);
  // Stops the thread after it has processed the posted messages. A recv() whose message has not
  // arrived fails with Aborted. No message may be posted afterwards.
  void stop();

 protected:
  using Lock = std::unique_lock<std::mutex>;
  // If the message need not wait for its turn, releases the lock, completes the message and returns
  // true.
  virtual bool take_at_once(Message& /*message*/, Lock& /*lock*/) { return false; }
  // Processes the next message. Called with the lock held; releases it while it works. Throws if
  // the connection is broken.
  virtual void serve(Lock& lock) = 0;
  // True if posted messages are still processed when the group ends.
  [[nodiscard]] virtual bool finishes() const = 0;
  [[nodiscard]] comm::ProcessGroup& group() { return *group_; }

  std::list<Message> posted_;

 private:
  void work();
  void fail_all(Lock& lock);

  std::string words_;
  Connect connect_;
  std::mutex mutex_;
  std::condition_variable due_;
  std::shared_ptr<comm::ProcessGroup> group_;
  std::exception_ptr broken_;
  bool stopping_ = false;
  std::thread thread_;
};

class Outgoing : public Direction {
 public:
  using Direction::Direction;

 private:
  void serve(Lock& lock) override;
  [[nodiscard]] bool finishes() const override { return true; }
};

class Incoming : public Direction {
 public:
  using Direction::Direction;

 private:
  struct Header {
    std::int64_t tag = 0, type = 0, bytes = 0;
  };
  struct Kept {
    Header header;
    std::vector<std::byte> payload;
  };
  bool take_at_once(Message& message, Lock& lock) override;
  void serve(Lock& lock) override;
  [[nodiscard]] bool finishes() const override { return false; }
  void receive(Message& message, const Header& header);

  std::map<std::int64_t, std::deque<Kept>> kept_;  // arrived before their recv(), by tag
};

}  // namespace ringsmith::pytorch
