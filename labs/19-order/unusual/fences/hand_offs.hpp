// Lab 19: five ways in which one thread hands data to another.
//
//     Letter    one number, once                      put() ------------------> take()
//     Slots     numbers through a few slots           send() =[ ][ ]==========> receive()
//     Meeting   all arrive; the last works alone      arrive() ... open() ----> leave()
//     Bell      wake the other only if it sleeps      post() -----------------> may_sleep()
//     Record    two numbers that are read together    write() ----------------> try_read()
//
// Memory is either the explorer's, which runs all executions that C++ allows, or a wrapper of
// <atomic>. An atomic<T> has load, store, exchange and fetch_add, each with its order as the last
// argument (Memory::relaxed, acquire, release, acq_rel, seq_cst). A plain<T> has get and set, and
// may be used by only one thread at a time. There is Memory::fence(order). Use
// Memory::wait_until(condition) for all waiting.
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

// The writer's actions before put() are visible to the reader after take().
template <class Memory>
class Letter {
 public:
  // Task 1. Called once, by the writer.
  void put([[maybe_unused]] Number text) {
    text_.set(text);
    Memory::fence(Memory::release);
    there_.store(1, Memory::relaxed);
  }

  // Task 1. Called once, by the reader. Waits until there is a letter.
  Number take() {
    Memory::wait_until([&] { return there_.load(Memory::relaxed) == 1; });
    Memory::fence(Memory::acquire);
    return text_.get();
  }

 private:
  typename Memory::template plain<Number> text_{"text"};
  typename Memory::template atomic<int> there_{"there", 0};
};

// Messages from one sender to one receiver, in order. Message m uses slot m modulo slots.
template <class Memory>
class Slots {
 public:
  // 1 to 4 slots. `lived`: number of messages that have already passed.
  explicit Slots(std::size_t slots, Count lived = 0)
      : tail_("tail", lived), head_("head", lived), sent_(lived), received_(lived) {
    for (const char* name : {"slot 0", "slot 1", "slot 2", "slot 3"})
      if (slots_.size() < slots) slots_.emplace_back(name);
  }

  // Task 2. Waits only while all slots hold messages that have not been received.
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
  typename Memory::template atomic<Count> tail_;  // messages sent; written by the sender
  typename Memory::template atomic<Count> head_;  // messages received; written by the receiver
  Count sent_, received_;                         // each used by one thread only
};

// All threads arrive; the last one works alone and opens; then the others leave. Every thread's
// actions before arrive() are visible to the last one, and the last one's actions before open() are
// visible to all. Rounds follow each other without limit.
template <class Memory>
class Meeting {
 public:
  struct Place {
    Count round = 0;
    bool last = false;
  };

  // `lived`: number of rounds that are already over.
  explicit Meeting(Count threads, Count lived = 0)
      : threads_(threads), arrived_("arrived", lived * threads), opened_("opened", lived) {}

  // Task 3. Never waits. In each round exactly one thread learns that it is the last.
  Place arrive() {
    const Count now = arrived_.fetch_add(1, Memory::release) + 1;
    if (now % threads_ != 0) return {now / threads_, false};
    Memory::fence(Memory::acquire);
    return {now / threads_ - 1, true};
  }

  // Task 3. Called by the last thread.
  void open([[maybe_unused]] const Place& place) {
    opened_.store(place.round + 1, Memory::release);
  }

  // Task 3. Called by the other threads. Waits until the last one of this round has opened.
  void leave([[maybe_unused]] const Place& place) {
    Memory::wait_until([&] { return opened_.load(Memory::acquire) > place.round; });
  }

 private:
  Count threads_;
  typename Memory::template atomic<Count> arrived_;
  typename Memory::template atomic<Count> opened_;
};

// A worker posts work, and a sleeper does it. Waking the sleeper is slow, so the worker first
// checks whether the sleeper is asleep. The loop of the sleeper, which has done `seen` pieces of
// work:
//
//     while (bell.posted() == seen) {
//       if (bell.may_sleep(seen)) sleep until woken;
//       bell.awake();
//     }
//
// If post() returns false while may_sleep() returns true, the sleeper is never woken.
template <class Memory>
class Bell {
 public:
  // `lived`: number of pieces of work that were already posted and done.
  explicit Bell(Count lived = 0) : posted_("posted", lived), asleep_("asleep", 0), made_(lived) {}

  // Task 4. Called by the worker. Posts one more piece of work, and makes it visible with
  // everything before it. Returns true if the sleeper must be woken, or false if the sleeper has
  // not announced that it sleeps or is awake again.
  bool post() {
    posted_.store(++made_, Memory::seq_cst);
    return asleep_.load(Memory::seq_cst) == 1;
  }

  // Task 4. Called by the sleeper. Returns the number of pieces of work posted; they are visible.
  Count posted() { return posted_.load(Memory::acquire); }

  // Task 4. Called by the sleeper, which has done `seen` pieces. Returns true if no more have been
  // posted, in which case the sleeper may sleep. Otherwise returns false, and the sleeper counts as
  // awake.
  bool may_sleep([[maybe_unused]] Count seen) {
    if (posted_.load(Memory::relaxed) != seen) return false;
    asleep_.store(1, Memory::seq_cst);
    const bool nothing = posted_.load(Memory::seq_cst) == seen;
    if (!nothing) awake();
    return nothing;
  }

  // Task 4. Called by the sleeper when it no longer sleeps.
  void awake() { asleep_.store(0, Memory::relaxed); }

 private:
  typename Memory::template atomic<Count> posted_;
  typename Memory::template atomic<int> asleep_;
  Count made_;  // used by the worker only
};

// Two numbers that one writer changes and any thread reads. Neither side waits for the other. A
// reader that overlaps a write gets nullopt and tries again later. An odd version means that a
// write is in progress.
template <class Memory>
class Record {
 public:
  // Task 5. Called by the writer.
  void write([[maybe_unused]] Number a, [[maybe_unused]] Number b) {
    ++writes_;
    version_.store(2 * writes_ - 1, Memory::relaxed);
    a_.store(a, Memory::release);
    b_.store(b, Memory::release);
    version_.store(2 * writes_, Memory::release);
  }

  // Task 5. Returns both numbers of the same write, or both 0 before the first; nullopt if a write
  // overlaps. The result is never older than one that this thread got before.
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
  Count writes_ = 0;  // used by the writer only
};

}  // namespace lab19
