// Unusual and correct: each side of Slots keeps a copy of the other side's count, and reads the
// count only if the copy does not suffice. Letter's flag is set by exchange, and the counts of Bell
// and Record grow by fetch_add.
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
    there_.exchange(1, Memory::release);
  }

  Number take() {
    Memory::wait_until([&] { return there_.load(Memory::acquire) == 1; });
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
    if (sent_ - taken_ == slots_.size())  // full, by the last value of head_ read
      Memory::wait_until(
          [&] { return (taken_ = head_.load(Memory::acquire)) + slots_.size() > sent_; });
    slots_[sent_ % slots_.size()].set(message);
    tail_.store(++sent_, Memory::release);
  }

  Number receive() {
    if (stored_ == received_)
      Memory::wait_until([&] { return (stored_ = tail_.load(Memory::acquire)) != received_; });
    const Number message = slots_[received_ % slots_.size()].get();
    head_.store(++received_, Memory::release);
    return message;
  }

 private:
  std::deque<typename Memory::template plain<Number>> slots_;
  typename Memory::template atomic<Count> tail_;  // messages sent; written by the sender
  typename Memory::template atomic<Count> head_;  // messages received; written by the receiver
  Count sent_, received_;                         // each used by one thread only
  // taken_: the last value of head_ that the sender has read. stored_: the last value of tail_ that
  // the receiver has read.
  Count taken_ = sent_, stored_ = sent_;
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
    const Count before = arrived_.fetch_add(1, Memory::acq_rel);
    return {before / threads_, before % threads_ == threads_ - 1};
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
  explicit Bell(Count lived = 0) : posted_("posted", lived), asleep_("asleep", 0) {}

  bool post() {
    posted_.fetch_add(1, Memory::release);
    Memory::fence(Memory::seq_cst);
    if (asleep_.load(Memory::relaxed) == 0) return false;
    return true;
  }

  Count posted() { return posted_.load(Memory::acquire); }

  bool may_sleep([[maybe_unused]] Count seen) {
    asleep_.store(1, Memory::relaxed);
    Memory::fence(Memory::seq_cst);
    if (posted_.load(Memory::relaxed) == seen) return true;
    awake();
    return false;
  }

  void awake() { asleep_.store(0, Memory::relaxed); }

 private:
  typename Memory::template atomic<Count> posted_;
  typename Memory::template atomic<int> asleep_;
};

template <class Memory>
class Record {
 public:
  void write([[maybe_unused]] Number a, [[maybe_unused]] Number b) {
    version_.fetch_add(1, Memory::relaxed);
    Memory::fence(Memory::release);
    a_.store(a, Memory::relaxed);
    b_.store(b, Memory::relaxed);
    version_.fetch_add(1, Memory::release);
  }

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
