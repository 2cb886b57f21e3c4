// send and recv as PyTorch has them: any order, any number in flight, matched by tag.
//
// The runtime's groups run one call at a time, which is right for collectives; two ranks that both
// send first, and a receiver that takes tag 2 before tag 1, would wait for each other forever. So
// each direction between two ranks has a group of its own, of the two, made when it is first used,
// and a thread that serves it:
//
//     rank 0   outgoing to 1  [ header | payload ][ header | payload ] ...  --> incoming from 0
//     rank 1   matches each header with a recv() of that tag, or keeps the message until there is
//              one
//
// Messages of one tag arrive in their order. A receiver waits for the next message only while it
// has a recv() without one, and then under the group's deadline.
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

// What is to be sent, or to be received into. done(error) is called once, on the thread that
// serves the direction; nullptr: all went well.
struct Message {
  at::Tensor tensor;
  int tag = 0;
  comm::Site site;
  std::function<void(std::exception_ptr)> done;
};

// A direction between two ranks, seen from one of them. Its first use makes the connection, on its
// own thread: it may have to wait for the other rank.
class Direction {
 public:
  using Connect = std::function<std::shared_ptr<comm::ProcessGroup>()>;
  // words: "send to rank 2", for errors.
  Direction(std::string words, Connect connect)
      : words_(std::move(words)), connect_(std::move(connect)) {}
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;
  virtual ~Direction() = default;  // stop() has been called

  void post(Message message);
  // Ends the thread, after what has been posted; a recv() that has no message by now is Aborted.
  // Afterwards nothing may be posted.
  void stop();

 protected:
  using Lock = std::unique_lock<std::mutex>;
  // A message that need not wait for its turn; false: it has to. Gives the lock back if it takes
  // it.
  virtual bool take_at_once(Message& /*message*/, Lock& /*lock*/) { return false; }
  // Does the next thing for what has been posted. Called with the lock, which it gives back while
  // it works; throws where the connection is broken.
  virtual void serve(Lock& lock) = 0;
  // May what is posted still be done once the group is to end?
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

  std::map<std::int64_t, std::deque<Kept>> kept_;  // came before their recv(), by tag
};

}  // namespace ringsmith::pytorch
