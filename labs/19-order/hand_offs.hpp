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
// may be used by only one thread at a time. Memory::fence(order) issues a fence. Use
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
#ifdef SOLUTION
    text_.set(text);
    there_.store(1, Memory::release);
#else
    kit::todo("task 1, Letter::put");
#endif
  }

  // Task 1. Called once, by the reader. Waits until there is a letter.
  Number take() {
#ifdef SOLUTION
    Memory::wait_until([&] { return there_.load(Memory::acquire) == 1; });
    return text_.get();
#else
    kit::todo("task 1, Letter::take");
#endif
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
#ifdef SOLUTION
    Memory::wait_until([&] { return sent_ - head_.load(Memory::acquire) < slots_.size(); });
    slots_[sent_ % slots_.size()].set(message);
    tail_.store(++sent_, Memory::release);
#else
    kit::todo("task 2, Slots::send");
#endif
  }

  // Task 2. Waits for a message.
  Number receive() {
#ifdef SOLUTION
    Memory::wait_until([&] { return tail_.load(Memory::acquire) != received_; });
    const Number message = slots_[received_ % slots_.size()].get();
    head_.store(++received_, Memory::release);
    return message;
#else
    kit::todo("task 2, Slots::receive");
#endif
  }

 private:
  std::deque<typename Memory::template plain<Number>> slots_;
  typename Memory::template atomic<Count> tail_;  // messages sent; written by the sender
  typename Memory::template atomic<Count> head_;  // messages received; written by the receiver
  Count sent_, received_;                         // each used by one thread only
};

// All threads arrive. The last one works alone and opens, and the others leave. Every thread's
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
#ifdef SOLUTION
    const Count before = arrived_.fetch_add(1, Memory::acq_rel);
    return {before / threads_, before % threads_ == threads_ - 1};
#else
    kit::todo("task 3, Meeting::arrive");
#endif
  }

  // Task 3. Called by the last thread.
  void open([[maybe_unused]] const Place& place) {
#ifdef SOLUTION
    opened_.store(place.round + 1, Memory::release);
#else
    kit::todo("task 3, Meeting::open");
#endif
  }

  // Task 3. Called by the other threads. Waits until the last one of this round has opened.
  void leave([[maybe_unused]] const Place& place) {
#ifdef SOLUTION
    Memory::wait_until([&] { return opened_.load(Memory::acquire) > place.round; });
#else
    kit::todo("task 3, Meeting::leave");
#endif
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
  // everything before it. Returns true if the sleeper must be woken: it has announced that it
  // sleeps, and is not awake again.
  bool post() {
#ifdef SOLUTION
    posted_.store(++made_, Memory::release);
    Memory::fence(Memory::seq_cst);
    return asleep_.load(Memory::relaxed) != 0;
#else
    kit::todo("task 4, Bell::post");
#endif
  }

  // Task 4. Called by the sleeper. Returns the number of pieces of work posted; they are visible.
  Count posted() {
#ifdef SOLUTION
    return posted_.load(Memory::acquire);
#else
    kit::todo("task 4, Bell::posted");
#endif
  }

  // Task 4. Called by the sleeper, which has done `seen` pieces. Returns true if no more have been
  // posted, in which case the sleeper may sleep. Otherwise returns false, and the sleeper counts as
  // awake.
  bool may_sleep([[maybe_unused]] Count seen) {
#ifdef SOLUTION
    asleep_.store(1, Memory::relaxed);
    Memory::fence(Memory::seq_cst);
    if (posted_.load(Memory::relaxed) == seen) return true;
    awake();
    return false;
#else
    kit::todo("task 4, Bell::may_sleep");
#endif
  }

  // Task 4. Called by the sleeper when it no longer sleeps.
  void awake() {
#ifdef SOLUTION
    asleep_.store(0, Memory::relaxed);
#else
    kit::todo("task 4, Bell::awake");
#endif
  }

 private:
  typename Memory::template atomic<Count> posted_;
  typename Memory::template atomic<int> asleep_;
  Count made_;  // used by the worker only
};

// Two numbers that one writer changes and any thread reads. Neither side waits for the other. A
// reader that overlaps a write may get nullopt, and tries again later. An odd version means that a
// write is in progress.
template <class Memory>
class Record {
 public:
  // Task 5. Called by the writer.
  void write([[maybe_unused]] Number a, [[maybe_unused]] Number b) {
#ifdef SOLUTION
    ++writes_;
    version_.store(2 * writes_ - 1, Memory::relaxed);
    Memory::fence(Memory::release);
    a_.store(a, Memory::relaxed);
    b_.store(b, Memory::relaxed);
    version_.store(2 * writes_, Memory::release);
#else
    kit::todo("task 5, Record::write");
#endif
  }

  // Task 5. Returns both numbers of one write, or two zeros before the first write. May return
  // nullopt if a write overlaps. The result is never older than one that this thread got before.
  std::optional<std::pair<Number, Number>> try_read() {
#ifdef SOLUTION
    const Count version = version_.load(Memory::acquire);
    if (version % 2 == 1) return std::nullopt;
    const Number a = a_.load(Memory::relaxed), b = b_.load(Memory::relaxed);
    Memory::fence(Memory::acquire);
    if (version_.load(Memory::relaxed) != version) return std::nullopt;
    return std::pair(a, b);
#else
    kit::todo("task 5, Record::try_read");
#endif
  }

 private:
  typename Memory::template atomic<Count> version_{"version", 0};
  typename Memory::template atomic<Number> a_{"a", 0};
  typename Memory::template atomic<Number> b_{"b", 0};
  Count writes_ = 0;  // used by the writer only
};

}  // namespace lab19
