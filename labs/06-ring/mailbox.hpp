// Lab 06, part 2: the same ring between real processes, over shared memory.
//
// There is a mailbox from every rank to every other: a few slots, and two counts that only grow.
//
//     sender                                     receiver
//       waits until  head > tail - slots           waits until  tail > head
//       copies into slot  tail mod slots           copies out of slot  head mod slots
//       publishes  tail + 1                        publishes  head + 1
//
//     tail: pieces ever put in                   head: pieces ever taken out
//
// A message longer than a slot is sent in several pieces. The counts are never reset, so a message
// may begin before the other side has noticed the previous message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "labs/kit/counter.hpp"
#include "labs/kit/processes.hpp"
#include "labs/kit/todo.hpp"

namespace lab06 {

// Stored in the shared memory, which is zero when the processes start.
struct Mailbox {
  static constexpr std::size_t slots = 2;
  static constexpr std::size_t slot_bytes = 256;
  kit::Counter tail;  // written by the sender only
  kit::Counter head;  // written by the receiver only
  std::byte slot[slots][slot_bytes];
};

// Task 6. Puts one piece (at most slot_bytes) into the mailbox; waits for a free slot first. peer:
// the receiving rank, for reports: box.head.wait_at_least(..., "send", peer).
inline void put_piece(Mailbox& box, std::span<const std::byte> piece, int peer) {
#ifdef SOLUTION
  const std::uint64_t tail = box.tail.read();
  if (tail >= Mailbox::slots) box.head.wait_at_least(tail + 1 - Mailbox::slots, "send", peer);
  std::copy(piece.begin(), piece.end(), box.slot[tail % Mailbox::slots]);
  box.tail.publish(tail + 1);  // last: the receiver may now read the slot
#else
  (void)box, (void)piece, (void)peer;
  kit::todo("task 6, put_piece");
#endif
}

// Task 6. Takes one piece of exactly piece.size() bytes out of the mailbox; waits for it first.
inline void take_piece(Mailbox& box, std::span<std::byte> piece, int peer) {
#ifdef SOLUTION
  const std::uint64_t head = box.head.read();
  box.tail.wait_at_least(head + 1, "recv", peer);
  std::copy_n(box.slot[head % Mailbox::slots], piece.size(), piece.begin());
  box.head.publish(head + 1);  // last: the sender may now overwrite the slot
#else
  (void)box, (void)piece, (void)peer;
  kit::todo("task 6, take_piece");
#endif
}

// A Link (labs/kit/link.hpp) over mailboxes, on which your all_reduce of part 1 runs unchanged.
class SharedLink {
 public:
  explicit SharedLink(kit::Member& member) : member_(member) {}
  // Returns the size of the shared memory of a world, in bytes.
  static std::size_t bytes(int world) { return sizeof(Mailbox) * std::size_t(world * world); }
  [[nodiscard]] int rank() const { return member_.rank(); }
  [[nodiscard]] int world() const { return member_.world(); }

  template <class T>
  void send(int to, std::span<T> data) {
    transfer(to, std::as_bytes(data), -1, {});
  }
  template <class T>
  void recv(int from, std::span<T> data) {
    transfer(-1, {}, from, std::as_writable_bytes(data));
  }
  template <class T, class U>
  void exchange(int to, std::span<T> out, int from, std::span<U> in) {
    transfer(to, std::as_bytes(out), from, std::as_writable_bytes(in));
  }

 private:
  [[nodiscard]] Mailbox& mailbox(int from, int to) const {
    return reinterpret_cast<Mailbox*>(member_.memory().data())[from * world() + to];
  }

  // Task 7. Sends out to rank `to` and receives in from rank `from`, in pieces of at most
  // slot_bytes; either span may be empty. Messages may be far longer than all slots together:
  // consider what happens if every rank first sends its whole message.
  void transfer(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
#ifdef SOLUTION
    // Alternates between sending and receiving one piece, so that each rank empties its neighbour's
    // slots as fast as it fills its own.
    while (!out.empty() || !in.empty()) {
      const std::size_t sent = std::min(out.size(), Mailbox::slot_bytes);
      if (sent > 0) put_piece(mailbox(rank(), to), out.first(sent), to);
      out = out.subspan(sent);
      const std::size_t taken = std::min(in.size(), Mailbox::slot_bytes);
      if (taken > 0) take_piece(mailbox(from, rank()), in.first(taken), from);
      in = in.subspan(taken);
    }
#else
    (void)to, (void)out, (void)from, (void)in;
    kit::todo("task 7, transfer");
#endif
  }

  kit::Member& member_;
};

}  // namespace lab06
