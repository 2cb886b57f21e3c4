// Unusual and correct: fences around relaxed accesses in Letter and Slots, and an acquire fence for
// the last thread of a Meeting; Bell has seq_cst accesses instead of fences; the values of Record
// carry the orders.
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

template <class Memory>
class Letter {
 public:
  void put([[maybe_unused]] Number text) {
    text_.set(text);
    Memory::fence(Memory::release);
    there_.store(1, Memory::relaxed);
  }

  Number take() {
    Memory::wait_until([&] { return there_.load(Memory::relaxed) == 1; });
    Memory::fence(Memory::acquire);
    return text_.get();
  }

 private:
  typename Memory::template plain<Number> text_{"text"};
  typename Memory::template atomic<int> there_{"there", 0};
};

template <class Memory>
class Slots {
 public:
  explicit Slots(std::size_t slots, Count lived = 0)
      : tail_("tail", lived), head_("head", lived), sent_(lived), received_(lived) {
    for (const char* name : {"slot 0", "slot 1", "slot 2", "slot 3"})
      if (slots_.size() < slots) slots_.emplace_back(name);
  }

  void send([[maybe_unused]] Number message) {
    Memory::wait_until([&] { return sent_ < head_.load(Memory::relaxed) + slots_.size(); });
    Memory::fence(Memory::acquire);
    slots_[sent_ % slots_.size()].set(message);
    Memory::fence(Memory::release);
    tail_.fetch_add(1, Memory::relaxed);
    ++sent_;
  }

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

template <class Memory>
class Meeting {
 public:
  struct Place {
    Count round = 0;
    bool last = false;
  };

  explicit Meeting(Count threads, Count lived = 0)
      : threads_(threads), arrived_("arrived", lived * threads), opened_("opened", lived) {}

  Place arrive() {
    const Count now = arrived_.fetch_add(1, Memory::release) + 1;
    if (now % threads_ != 0) return {now / threads_, false};
    Memory::fence(Memory::acquire);
    return {now / threads_ - 1, true};
  }

  void open([[maybe_unused]] const Place& place) {
    opened_.store(place.round + 1, Memory::release);
  }

  void leave([[maybe_unused]] const Place& place) {
    Memory::wait_until([&] { return opened_.load(Memory::acquire) > place.round; });
  }

 private:
  Count threads_;
  typename Memory::template atomic<Count> arrived_;
  typename Memory::template atomic<Count> opened_;
};

template <class Memory>
class Bell {
 public:
  explicit Bell(Count lived = 0) : posted_("posted", lived), asleep_("asleep", 0), made_(lived) {}

  bool post() {
    posted_.store(++made_, Memory::seq_cst);
    return asleep_.load(Memory::seq_cst) == 1;
  }

  Count posted() { return posted_.load(Memory::acquire); }

  bool may_sleep([[maybe_unused]] Count seen) {
    if (posted_.load(Memory::relaxed) != seen) return false;
    asleep_.store(1, Memory::seq_cst);
    const bool nothing = posted_.load(Memory::seq_cst) == seen;
    if (!nothing) awake();
    return nothing;
  }

  void awake() { asleep_.store(0, Memory::relaxed); }

 private:
  typename Memory::template atomic<Count> posted_;
  typename Memory::template atomic<int> asleep_;
  Count made_;  // used by the worker only
};

template <class Memory>
class Record {
 public:
  void write([[maybe_unused]] Number a, [[maybe_unused]] Number b) {
    ++writes_;
    version_.store(2 * writes_ - 1, Memory::relaxed);
    a_.store(a, Memory::release);
    b_.store(b, Memory::release);
    version_.store(2 * writes_, Memory::release);
  }

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
