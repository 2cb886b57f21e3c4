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
// A recv() from any source is posted to all incoming directions, and the first direction that has a
// message of its tag takes it (AnySource). A direction that only has such recv()s must not wait
// inside the group, where the deadline would break it. It looks for a message at intervals instead.
//
// Messages of one tag arrive in order. A receiver waits for the next message only while a recv() is
// pending; the group's deadline applies to this wait.
#pragma once

#include <ATen/ATen.h>
#include <atomic>
#include <chrono>
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

#include "labs/torch/group.hpp"

namespace ringsmith::pytorch {

// A recv() from any source, shared by the incoming directions to which it is posted.
class AnySource {
 public:
  AnySource(int directions, std::chrono::steady_clock::time_point until)
      : left_(directions), until_(until) {}
  // True for the first caller: its direction takes the message, or reports the failure.
  [[nodiscard]] bool take() { return !taken_.exchange(true); }
  [[nodiscard]] bool taken() const { return taken_.load(); }
  // A direction leaves, because its rank is lost. True for the last one: it reports the failure.
  [[nodiscard]] bool leave() { return --left_ == 0 && take(); }
  [[nodiscard]] std::chrono::steady_clock::time_point until() const { return until_; }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<int> left_;
  const std::chrono::steady_clock::time_point until_;
};

// done(error) is called once, by post() or on the direction's thread; nullptr means success. If the
// message has an AnySource, only the direction that has taken it calls done().
struct Message {
  at::Tensor tensor;
  int tag = 0;
  comm::Site site;
  std::function<void(std::exception_ptr)> done;
  std::shared_ptr<AnySource> any = nullptr;
};

// One rank's end of a direction between two ranks. The direction's thread connects at the first
// use, because it may have to wait for the other rank.
class Direction {
 public:
  using Connect = std::function<std::shared_ptr<Group>()>;
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
  // True if no message can be processed yet; then returns after a while. Called with the lock held;
  // releases it meanwhile. Throws if no message can come any more.
  virtual bool must_wait(Lock& /*lock*/) { return false; }
  // Processes the next message. Called with the lock held; releases it while it works. Throws if
  // the connection is broken.
  virtual void serve(Lock& lock) = 0;
  // True if posted messages are still processed when the group ends.
  [[nodiscard]] virtual bool finishes() const = 0;
  [[nodiscard]] Group& group() { return *group_; }
  [[nodiscard]] bool connected() const { return group_ != nullptr; }
  // Waits until a message is posted or the group ends, but not longer than the pause.
  void wait_for_post(Lock& lock, std::chrono::microseconds pause) { due_.wait_for(lock, pause); }

  std::list<Message> posted_;

 private:
  void work();
  void fail_all(Lock& lock);

  std::string words_;
  Connect connect_;
  std::mutex mutex_;
  std::condition_variable due_;
  std::shared_ptr<Group> group_;
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
  // Returns true if the sender has begun to connect. Throws PeerLost if it never will.
  using Arrived = std::function<bool()>;
  Incoming(std::string words, Connect connect, Arrived arrived)
      : Direction(std::move(words), std::move(connect)), arrived_(std::move(arrived)) {}

 private:
  struct Header {
    std::int64_t tag = 0, type = 0, bytes = 0;
  };
  struct Kept {
    Header header;
    std::vector<std::byte> payload;
  };
  bool take_at_once(Message& message, Lock& lock) override;
  bool must_wait(Lock& lock) override;
  std::list<Message>::iterator find_posted(std::int64_t tag);
  void serve(Lock& lock) override;
  [[nodiscard]] bool finishes() const override { return false; }
  void receive(Message& message, const Header& header);

  Arrived arrived_;
  std::chrono::microseconds pause_{0};  // before the next look for a message from any source
  std::map<std::int64_t, std::deque<Kept>> kept_;  // arrived before their recv(), by tag
};

}  // namespace ringsmith::pytorch
