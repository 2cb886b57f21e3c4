// The handshake: a FIFO of slots from one rank to another, with two counters that only grow.
//
//     producer owns tail: messages put in        consumer owns head: messages taken out (credit)
//
//        +------+------+------+------+           put:   wait until  tail - head < kSlots
//        | slot | slot | slot | slot |                  fill slot tail % kSlots;  tail += 1
//        +------+------+------+------+           take:  wait until  tail > head
//           ^ head        ^ tail                        read slot head % kSlots;  head += 1
//
// Storing tail publishes the slot's bytes (release); loading it makes them readable (acquire). head
// hands back the right to overwrite a slot in the same way. The slots are in the producer's
// segment; a remote consumer reads them in its mirror (network_transport.hpp).
#pragma once

#include "runtime/comm/transport/segments.hpp"

namespace ringsmith::comm {

// The sending end of one lane.
class Outbox {
 public:
  Outbox(Segments& segments, int peer, int lane)
      : segments_(&segments),
        peer_(peer),
        tail_(&segments.lane(segments.rank(), peer, lane).tail),
        head_(&segments.lane(peer, segments.rank(), lane).head),
        slots_(segments.slots(segments.rank(), peer, lane)),
        slot_bytes_(segments.layout().slot_bytes()) {}
  [[nodiscard]] bool has_room() const {
    if (posted_ - known_head_ < kSlots) return true;
    known_head_ = head_->load();
    return posted_ - known_head_ < kSlots;
  }
  [[nodiscard]] std::byte* slot() const { return slots_ + posted_ % kSlots * slot_bytes_; }
  // Posts a message: the first `size` bytes of the slot.
  void post(std::size_t size) {
    segments_->expose(peer_, slot(), size);
    segments_->publish_to(peer_, *tail_, ++posted_);
  }
  // True if messages may be sent from any memory, with post_from().
  [[nodiscard]] bool lends() const { return segments_->on_network(peer_); }
  // Sends `size` bytes at `data`, which may change once the call has returned. Requires lends().
  void post_from(const std::byte* data, std::size_t size) {
    segments_->lend(peer_, data, slot(), size);
    segments_->publish_to(peer_, *tail_, ++posted_);
  }

 private:
  Segments* segments_;
  int peer_;
  std::atomic<std::uint64_t>* tail_;
  const std::atomic<std::uint64_t>* head_;
  std::byte* slots_;
  std::size_t slot_bytes_;
  std::uint64_t posted_ = 0;
  mutable std::uint64_t known_head_ = 0;  // last value read from *head_, which the peer writes
};

class Inbox {
 public:
  Inbox(Segments& segments, int peer, int lane)
      : segments_(&segments),
        peer_(peer),
        tail_(&segments.lane(peer, segments.rank(), lane).tail),
        head_(&segments.lane(segments.rank(), peer, lane).head),
        slots_(segments.slots(peer, segments.rank(), lane)),
        slot_bytes_(segments.layout().slot_bytes()) {}
  [[nodiscard]] bool has_message() const {
    if (known_tail_ > taken_) return true;
    known_tail_ = tail_->load();
    return known_tail_ > taken_;
  }
  [[nodiscard]] const std::byte* slot() const { return slots_ + taken_ % kSlots * slot_bytes_; }
  // Frees the slot. A credit to a remote rank costs a message, so only every (kSlots / 2)th is sent
  // immediately; the others may wait for the next message.
  void release() {
    if (++taken_ % (kSlots / 2) == 0)
      segments_->publish_to(peer_, *head_, taken_);
    else
      segments_->note_to(peer_, *head_, taken_);
  }

 private:
  Segments* segments_;
  int peer_;
  const std::atomic<std::uint64_t>* tail_;
  std::atomic<std::uint64_t>* head_;
  const std::byte* slots_;
  std::size_t slot_bytes_;
  std::uint64_t taken_ = 0;
  mutable std::uint64_t known_tail_ = 0;
};

class Channels {
 public:
  explicit Channels(Segments& segments) {
    for (int peer = 0; peer < segments.size(); ++peer)
      for (int lane = 0; lane < kLanes; ++lane) {
        out_.emplace_back(segments, peer, lane);
        in_.emplace_back(segments, peer, lane);
      }
  }
  [[nodiscard]] Outbox& out(int peer, int lane) { return out_[index(peer, lane)]; }
  [[nodiscard]] Inbox& in(int peer, int lane) { return in_[index(peer, lane)]; }

 private:
  [[nodiscard]] static std::size_t index(int peer, int lane) {
    return static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(lane);
  }
  std::vector<Outbox> out_;
  std::vector<Inbox> in_;
};

}  // namespace ringsmith::comm
