// Lab 19: five ways in which a thread hands something to another one.
//
//     Letter    one number, once                      put() ------------------> take()
//     Slots     numbers through a few slots           send() =[ ][ ]==========> receive()
//     Meeting   all have arrived; one works alone     arrive() ... open() ----> leave()
//     Bell      wake the other only if it sleeps      post() -----------------> may_sleep()
//     Record    two numbers that are read together    write() ----------------> try_read()
//
// Memory is the explorer's here, which runs all executions that C++ allows, and could be that of
// <atomic>: an atomic<T> has load, store, exchange and fetch_add, each with its order as the last
// argument (Memory::relaxed, acquire, release, acq_rel, seq_cst); a plain<T> has get and set, and
// may be used by one thread at a time only; there are Memory::fence(order), and
// Memory::wait_until(condition), with which everything waits that has to wait.
//
// Boehm, Adve: Foundations of the C++ Concurrency Memory Model, PLDI 2008.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "labs/kit/todo.hpp"

namespace lab19 {

using Number = std::int64_t;
using Count = std::uint64_t;

// What a writer did before put() is visible to the reader behind take().
template <class Memory>
class Letter {
 public:
  // Task 1. By the writer, once.
  void put([[maybe_unused]] Number text) {
    text_.set(text);
    there_.exchange(1, Memory::release);
  }

  // Task 1. By the reader, once: waits until there is a letter.
  Number take() {
    Memory::wait_until([&] { return there_.load(Memory::acquire) == 1; });
    return text_.get();
  }

 private:
  typename Memory::template plain<Number> text_{"text"};
  typename Memory::template atomic<int> there_{"there", 0};
};

// Messages of one sender to one receiver, in order. Message m lies in slot m modulo slots.
template <class Memory>
class Slots {
 public:
  // 1 to 4 slots; `lived`: so many messages have gone through already.
  explicit Slots(std::size_t slots, Count lived = 0)
      : tail_("tail", lived), head_("head", lived), sent_(lived), received_(lived) {
    for (const char* name : {"slot 0", "slot 1", "slot 2", "slot 3"})
      if (slots_.size() < slots) slots_.emplace_back(name);
  }

  // Task 2. Waits only if all slots hold messages that were not received yet.
  void send([[maybe_unused]] Number message) {
    if (sent_ - taken_ == slots_.size())  // as far as it has looked
      Memory::wait_until(
          [&] { return (taken_ = head_.load(Memory::acquire)) + slots_.size() > sent_; });
    slots_[sent_ % slots_.size()].set(message);
    tail_.store(++sent_, Memory::release);
  }

  // Task 2. Waits for a message.
  Number receive() {
    if (stored_ == received_)
      Memory::wait_until([&] { return (stored_ = tail_.load(Memory::acquire)) != received_; });
    const Number message = slots_[received_ % slots_.size()].get();
    head_.store(++received_, Memory::release);
    return message;
  }

 private:
  std::deque<typename Memory::template plain<Number>> slots_;
  typename Memory::template atomic<Count> tail_;  // messages that were stored: the sender's
  typename Memory::template atomic<Count> head_;  // messages that were taken: the receiver's
  Count sent_, received_;                         // known to one thread only, each
  Count taken_ = sent_, stored_ = sent_;          // what they last saw of the other
};

// All threads arrive; the last one works alone, and opens; then the others leave. What any thread
// did before arrive() is visible to the last one, what the last one did before open() to all. Again
// and again: a round follows a round.
template <class Memory>
class Meeting {
 public:
  struct Place {
    Count round = 0;
    bool last = false;
  };

  // `lived`: so many rounds are over already.
  explicit Meeting(Count threads, Count lived = 0)
      : threads_(threads), arrived_("arrived", lived * threads), opened_("opened", lived) {}

  // Task 3. Never waits. In each round one thread is told that it is the last.
  Place arrive() {
    const Count before = arrived_.fetch_add(1, Memory::acq_rel);
    return {before / threads_, before % threads_ == threads_ - 1};
  }

  // Task 3. By the last one.
  void open([[maybe_unused]] const Place& place) {
    opened_.store(place.round + 1, Memory::release);
  }

  // Task 3. By the others: waits until the last one of this round has opened.
  void leave([[maybe_unused]] const Place& place) {
    Memory::wait_until([&] { return opened_.load(Memory::acquire) > place.round; });
  }

 private:
  Count threads_;
  typename Memory::template atomic<Count> arrived_;
  typename Memory::template atomic<Count> opened_;
};

// A worker posts work, and a sleeper does it. To wake the sleeper is slow, so the worker asks first
// whether it sleeps. The loop of the sleeper, which has done `seen` pieces of work:
//
//     while (bell.posted() == seen) {
//       if (bell.may_sleep(seen)) sleep until somebody wakes me;
//       bell.awake();
//     }
//
// If post() says that nobody must be woken while may_sleep() says that it may sleep, nobody wakes
// it, ever.
template <class Memory>
class Bell {
 public:
  // `lived`: so many pieces of work were posted, and done, already.
  explicit Bell(Count lived = 0) : posted_("posted", lived), asleep_("asleep", 0) {}

  // Task 4. By the worker: there is one more piece of work, visible with all that came before. True
  // if the sleeper must be woken: not if it has never said that it sleeps, or is awake again.
  bool post() {
    posted_.fetch_add(1, Memory::release);
    Memory::fence(Memory::seq_cst);
    if (asleep_.load(Memory::relaxed) == 0) return false;
    return true;
  }

  // Task 4. By the sleeper: how many pieces of work were posted; they are visible.
  Count posted() { return posted_.load(Memory::acquire); }

  // Task 4. By the sleeper, which has seen so many pieces: whether there are no others, so that it
  // may sleep. If not, it is awake.
  bool may_sleep([[maybe_unused]] Count seen) {
    asleep_.store(1, Memory::relaxed);
    Memory::fence(Memory::seq_cst);
    if (posted_.load(Memory::relaxed) == seen) return true;
    awake();
    return false;
  }

  // Task 4. By the sleeper: it sleeps no more.
  void awake() { asleep_.store(0, Memory::relaxed); }

 private:
  typename Memory::template atomic<Count> posted_;
  typename Memory::template atomic<int> asleep_;
};

// Two numbers that one writer changes and anybody reads, without waiting for each other: who reads
// while they are being changed is told so, and tries again later. An odd version: being changed.
template <class Memory>
class Record {
 public:
  // Task 5. By the writer.
  void write([[maybe_unused]] Number a, [[maybe_unused]] Number b) {
    version_.fetch_add(1, Memory::relaxed);
    Memory::fence(Memory::release);
    a_.store(a, Memory::relaxed);
    b_.store(b, Memory::relaxed);
    version_.fetch_add(1, Memory::release);
  }

  // Task 5. Both of one write, or both 0 before the first; nothing if a write comes in between.
  // Never older than what this thread has read before.
  std::optional<std::pair<Number, Number>> try_read() {
    const Count version = version_.load(Memory::acquire);
    if (version % 2 == 1) return std::nullopt;
    const Number a = a_.load(Memory::relaxed), b = b_.load(Memory::relaxed);
    Memory::fence(Memory::acquire);
    if (version_.load(Memory::relaxed) != version) return std::nullopt;
    return std::pair(a, b);
  }

 private:
  typename Memory::template atomic<Count> version_{"version", 0};
  typename Memory::template atomic<Number> a_{"a", 0};
  typename Memory::template atomic<Number> b_{"b", 0};
};

}  // namespace lab19
