// Lab 12: the ring between machines.
//
//     rank r-1 --slots--> rank r --slots--> rank r+1        a connection to each neighbour (lab 11)
//              <-credits-        <-credits-
//
// A message stays in a slot of the receiver's inbox until the receiver has copied it out and
// returned a credit. A sender without credit must not write. Longer messages are sent in pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab12 {

struct Slots {
  std::size_t bytes = 64;  // of each slot
  int count = 4;
};

// One end of a connection, for messages in both directions. Endpoint is lab 11's:
//   put(from, to, bytes, value)   outbox[from..] to the peer's inbox[to..], announced by value
//   poll()                        the next value that has arrived, if any
// inbox and outbox are the endpoint's, with slots.bytes * slots.count bytes each.
template <class Endpoint>
class Channel {
 public:
  Channel(Endpoint& end, std::span<std::byte> inbox, std::span<std::byte> outbox, Slots slots)
      : end_(end), inbox_(inbox), outbox_(outbox), slots_(slots) {}

  [[nodiscard]] std::size_t slot_bytes() const { return slots_.bytes; }

  // Task 1. Writes a message of up to slot_bytes() bytes into the peer's next slot. Returns false
  // if that slot is not free, without waiting for it. Copies the message: the caller may reuse its
  // memory immediately.
  [[nodiscard]] bool try_send(std::span<const std::byte> message) {
#ifdef SOLUTION
    listen();
    if (sent_ - taken_by_peer_ == std::uint64_t(slots_.count)) return false;
    const std::size_t at = slots_.bytes * std::size_t(sent_ % std::uint64_t(slots_.count));
    // The peer has copied the previous message out of this slot, so the device has read its bytes.
    if (!message.empty()) std::memcpy(outbox_.data() + at, message.data(), message.size());
    end_.put(at, at, message.size(), std::uint32_t(message.size()));
    ++sent_;
    return true;
#else
    (void)message;
    kit::todo("task 1, try_send");
#endif
  }

  // Task 2. Copies the oldest message that has arrived into `message` and returns its length, or
  // nullopt if none has arrived. Messages keep their order. Frees the slot for the peer.
  [[nodiscard]] std::optional<std::size_t> try_receive(std::span<std::byte> message) {
#ifdef SOLUTION
    listen();
    if (lengths_.empty()) return std::nullopt;
    const std::size_t length = std::min(lengths_.front(), message.size());
    lengths_.pop_front();
    const std::size_t at = slots_.bytes * std::size_t(taken_ % std::uint64_t(slots_.count));
    if (length > 0) std::memcpy(message.data(), inbox_.data() + at, length);
    ++taken_;
    end_.put(0, 0, 0, credit);  // after the bytes are out
    return length;
#else
    (void)message;
    kit::todo("task 2, try_receive");
#endif
  }

 private:
#ifdef SOLUTION
  static constexpr std::uint32_t credit = 0x80000000;  // exceeds every length

  // Lengths and credits arrive in one sequence.
  void listen() {
    while (const std::optional<std::uint32_t> value = end_.poll()) {
      if (*value == credit)
        ++taken_by_peer_;
      else
        lengths_.push_back(*value);
    }
  }
#endif

  Endpoint& end_;
  std::span<std::byte> inbox_, outbox_;
  Slots slots_;
#ifdef SOLUTION
  std::uint64_t sent_ = 0, taken_by_peer_ = 0, taken_ = 0;  // messages; never decrease
  std::deque<std::size_t> lengths_;                         // of messages not yet received
#endif
};

// Task 3. Sets work to the sum of all ranks' work, on every rank: the ring of lab 06 over two
// channels, to the right neighbour and from the left one, with the same slots on all ranks. T is
// trivially copyable and has +=. A slot holds at least one element; chunks may be longer than a
// slot, and slot_bytes() need not be a multiple of sizeof(T).
// When neither a send nor a receive makes progress, call idle(), which throws if a rank has died;
// do not catch the exception.
template <class T, class Channel>
void all_reduce(Channel& right, Channel& left, int rank, int world, std::span<T> work,
                const std::function<void()>& idle) {
#ifdef SOLUTION
  const std::size_t n = std::size_t(world), self = std::size_t(rank);
  const std::size_t piece = right.slot_bytes() / sizeof(T);  // elements
  const auto chunk = [&](std::size_t index) {
    const std::size_t c = index % n, base = work.size() / n, longer = work.size() % n;
    return work.subspan(c * base + std::min(c, longer), base + (c < longer ? 1 : 0));
  };
  std::vector<T> landing(piece);
  for (std::size_t step = 0; step + 2 < 2 * n; ++step) {
    const bool adds = step + 1 < n;
    std::span<T> out = chunk(2 * n + self - 1 - step), in = chunk(2 * n + self - 2 - step);
    while (!out.empty() || !in.empty()) {
      bool moved = false;
      const std::span<T> next = out.first(std::min(piece, out.size()));
      if (!next.empty() && right.try_send(std::as_bytes(next))) {
        out = out.subspan(next.size());
        moved = true;
      }
      // Receive even if nothing can be sent: the right neighbour may be waiting for us in a cycle.
      const std::span<T> expected = std::span<T>(landing).first(std::min(piece, in.size()));
      if (!expected.empty() && left.try_receive(std::as_writable_bytes(expected))) {
        for (std::size_t i = 0; i < expected.size(); ++i)
          in[i] = adds ? T(in[i] += expected[i]) : expected[i];
        in = in.subspan(expected.size());
        moved = true;
      }
      if (!moved) idle();
    }
  }
#else
  (void)right, (void)left, (void)rank, (void)world, (void)work, (void)idle;
  kit::todo("task 3, all_reduce");
#endif
}

// Task 4. There are several ranks on each machine: `inside` links the ranks of one machine,
// `across` the ranks with the same place on all machines. Both are links as in lab 06, whose three
// collectives are given as Ring::reduce_scatter, Ring::all_gather, Ring::all_reduce (link, span).
// Send between machines only the data that must cross: each rank sends as much as in a ring
// all-reduce of 1 / inside.world() of the array.
template <class Ring, class T, class Inside, class Across>
void hierarchical_all_reduce(Inside& inside, Across& across, std::span<T> work) {
#ifdef SOLUTION
  Ring::reduce_scatter(inside, work);
  const std::size_t n = std::size_t(inside.world()), c = std::size_t(inside.rank());
  const std::size_t base = work.size() / n, longer = work.size() % n;  // chunks as in lab 06
  Ring::all_reduce(across,
                   work.subspan(c * base + std::min(c, longer), base + (c < longer ? 1 : 0)));
  Ring::all_gather(inside, work);
#else
  (void)inside, (void)across, (void)work;
  kit::todo("task 4, hierarchical_all_reduce");
#endif
}

}  // namespace lab12
