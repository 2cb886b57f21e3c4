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
    Memory::fence(Memory::release);
    there_.store(1, Memory::relaxed);
  }

  // Task 1. By the reader, once: waits until there is a letter.
  Number take() {
    Memory::wait_until([&] { return there_.load(Memory::relaxed) == 1; });
    Memory::fence(Memory::acquire);
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
    Memory::wait_until([&] { return sent_ < head_.load(Memory::relaxed) + slots_.size(); });
    Memory::fence(Memory::acquire);
    slots_[sent_ % slots_.size()].set(message);
    Memory::fence(Memory::release);
    tail_.fetch_add(1, Memory::relaxed);
    ++sent_;
  }

  // Task 2. Waits for a message.
  Number receive() {
    Memory::wait_until([&] { return tail_.load(Memory::relaxed) > received_; });
    Memory::fence(Memory::acquire);
    const Number message = slots_[received_ % slots_.size()].get();
    Memory::fence(Memory::release);
    head_.fetch_add(1, Memory::relaxed);
    ++received_;
    return message;
  }

 private:
  std::deque<typename Memory::template plain<Number>> slots_;
  typename Memory::template atomic<Count> tail_;  // messages that were stored: the sender's
  typename Memory::template atomic<Count> head_;  // messages that were taken: the receiver's
  Count sent_, received_;                         // known to one thread only, each
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
    const Count now = arrived_.fetch_add(1, Memory::release) + 1;
    if (now % threads_ != 0) return {now / threads_, false};
    Memory::fence(Memory::acquire);
    return {now / threads_ - 1, true};
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
  explicit Bell(Count lived = 0) : posted_("posted", lived), asleep_("asleep", 0), made_(lived) {}

  // Task 4. By the worker: there is one more piece of work, visible with all that came before. True
  // if the sleeper must be woken: not if it has never said that it sleeps, or is awake again.
  bool post() {
    posted_.store(++made_, Memory::seq_cst);
    return asleep_.load(Memory::seq_cst) == 1;
  }

  // Task 4. By the sleeper: how many pieces of work were posted; they are visible.
  Count posted() { return posted_.load(Memory::acquire); }

  // Task 4. By the sleeper, which has seen so many pieces: whether there are no others, so that it
  // may sleep. If not, it is awake.
  bool may_sleep([[maybe_unused]] Count seen) {
    if (posted_.load(Memory::relaxed) != seen) return false;
    asleep_.store(1, Memory::seq_cst);
    const bool nothing = posted_.load(Memory::seq_cst) == seen;
    if (!nothing) awake();
    return nothing;
  }

  // Task 4. By the sleeper: it sleeps no more.
  void awake() { asleep_.store(0, Memory::relaxed); }

 private:
  typename Memory::template atomic<Count> posted_;
  typename Memory::template atomic<int> asleep_;
  Count made_;  // known to the worker only
};

// Two numbers that one writer changes and anybody reads, without waiting for each other: who reads
// while they are being changed is told so, and tries again later. An odd version: being changed.
template <class Memory>
class Record {
 public:
  // Task 5. By the writer.
  void write([[maybe_unused]] Number a, [[maybe_unused]] Number b) {
    ++writes_;
    version_.store(2 * writes_ - 1, Memory::relaxed);
    a_.store(a, Memory::release);
    b_.store(b, Memory::release);
    version_.store(2 * writes_, Memory::release);
  }

  // Task 5. Both of one write, or both 0 before the first; nothing if a write comes in between.
  // Never older than what this thread has read before.
  std::optional<std::pair<Number, Number>> try_read() {
    const Count version = version_.load(Memory::acquire);
    if (version % 2 == 1) return std::nullopt;
    const Number a = a_.load(Memory::acquire), b = b_.load(Memory::acquire);
    if (version_.load(Memory::relaxed) != version) return std::nullopt;
    return std::pair(a, b);
  }

 private:
  typename Memory::template atomic<Count> version_{"version", 0};
  typename Memory::template atomic<Number> a_{"a", 0};
  typename Memory::template atomic<Number> b_{"b", 0};
  Count writes_ = 0;  // known to the writer only
};

}  // namespace lab19
