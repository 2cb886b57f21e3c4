// The memory of a group's ranks as seen by one of them: shared memory for ranks on the same host,
// mirrors for remote ones (network_transport.hpp). Also publishes this rank's writes to the others.
#pragma once

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "runtime/comm/transport/layout.hpp"
#include "runtime/comm/transport/network_transport.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"
#include "runtime/comm/transport/shm/segment.hpp"

namespace ringsmith::comm {

class Segments {
 public:
  // Collective.
  Segments(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }
  [[nodiscard]] std::byte* base(int rank) const { return peer(rank).base; }
  [[nodiscard]] Control& control(int rank) const {
    return *std::launder(reinterpret_cast<Control*>(base(rank)));
  }
  [[nodiscard]] Control& mine() const { return control(rank_); }
  [[nodiscard]] std::byte* staging(int rank, std::uint64_t round) const {
    return base(rank) + Layout::staging(round);
  }
  [[nodiscard]] Lane& lane(int rank, int peer, int index) const {
    return *std::launder(reinterpret_cast<Lane*>(base(rank) + layout_.lane(peer, index)));
  }
  [[nodiscard]] std::byte* slots(int rank, int peer, int index) const {
    return base(rank) + layout_.slots(peer, index);
  }
  [[nodiscard]] Flight& flight(int rank) const {
    return *std::launder(reinterpret_cast<Flight*>(base(rank) + layout_.flight()));
  }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  // The longest message worth sending; the same on all ranks. In shared memory it should stay in
  // the cache, even if the slot has more room.
  [[nodiscard]] std::size_t message_bytes() const {
    return all_local() ? kSlotBytes : layout_.slot_bytes();
  }
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return arena_; }

  // True if all ranks share memory.
  [[nodiscard]] bool all_local() const { return network_ == nullptr; }
  [[nodiscard]] bool on_network(int rank) const { return network_ && link(rank).remote; }
  [[nodiscard]] NetworkTransport* network() const { return network_.get(); }
  [[nodiscard]] const PeerLink& link(int rank) const { return peer(rank).link; }
  [[nodiscard]] int socket(int rank) const {
    return on_network(rank) ? network_->socket(rank) : link(rank).socket.get();
  }
  // True if the connection to rank has ended: the rank has left, its process has ended, or the
  // network has failed.
  [[nodiscard]] bool is_gone(int rank) const;
  [[nodiscard]] std::vector<std::string> describe() const;  // one line for each remote rank
  [[nodiscard]] std::vector<int> node_of() const;           // [rank]: number as in shm/mesh.hpp
  [[nodiscard]] int ranks_on_machine() const;               // this rank included
  [[nodiscard]] const std::shared_ptr<Bootstrap>& bootstrap() const { return bootstrap_; }
  // Bytes written for ranks on other nodes, counters and reports included.
  [[nodiscard]] Bytes sent_between_nodes() const {
    return Bytes(between_nodes_.load(std::memory_order_relaxed));
  }

  // Stores a counter that other ranks wait for, then wakes the ranks that sleep (doorbell.hpp).
  void publish(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    publish_count(counter, value);
    for (int r = 0; r < size(); ++r) tell(r, counter, value);
  }
  void publish_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    publish_count(counter, value);
    tell(rank, counter, value);
  }
  // Like publish_to(), for a counter that no rank waits for yet. A remote rank may receive the
  // value only with the next publish_to(), or when this rank next waits.
  void note_to(int rank, std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    if (!on_network(rank)) return publish_to(rank, counter, value);
    counter.store(value, std::memory_order_relaxed);
    network_->note(rank, offset_of(&counter), value);
    count(rank, sizeof value);
  }
  // Sends bytes of this rank's segment to `rank` if it does not share this memory. The next publish
  // makes them readable there. The bytes must not change until the rank has acknowledged them.
  void expose(int rank, const void* data, std::size_t size) {
    if (!on_network(rank)) return;
    network_->write(rank, offset_of(data), static_cast<const std::byte*>(data), size);
    count(rank, size);
  }
  void expose_to_all(const void* data, std::size_t size) {
    for (int r = 0; r < this->size() && network_; ++r) expose(r, data, size);
  }
  // Like expose(), for bytes outside the segment, which may change after the next publish. `place`
  // in the segment is reserved for them until the rank has acknowledged them. Only for remote
  // ranks.
  void lend(int rank, const std::byte* data, std::byte* place, std::size_t size) {
    network_->lend(rank, offset_of(place), data, size, place);
    count(rank, size);
  }
  // Receives and sends pending bytes. Loops that wait without PeerWaiter::wait() must call it.
  void look() {
    if (network_) network_->progress();
  }

  // Wakes a sleeping rank that shares memory with this one.
  void ring(int rank) {
    Doorbell& bell = control(rank).bell;
    if (bell.ring() == kOnSockets)
      wake_by_socket(rank);
    else
      bell.wake_futex();
  }

 private:
  struct RankMemory {
    PeerLink link;
    std::shared_ptr<Segment> segment;  // the rank's own, or this rank's mirror of it
    std::byte* base = nullptr;         // segment->data(); every wait reads it
  };
  [[nodiscard]] const RankMemory& peer(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::size_t offset_of(const void* data) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(data) - base(rank_));
  }
  void tell(int rank, const std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    if (!on_network(rank)) {
      if (control(rank).bell.owner_sleeps()) ring(rank);
      return;
    }
    network_->publish(rank, offset_of(&counter), value);
    count(rank, sizeof value);
  }
  void wake_by_socket(int rank) const;
  void count(int rank, std::size_t size) {
    if (link(rank).node != link(rank_).node)
      between_nodes_.fetch_add(size, std::memory_order_relaxed);
  }
  void commit_slots(Segment& segment) const;
  void connect_network(const GroupOptions& options);

  std::shared_ptr<Bootstrap> bootstrap_;
  int rank_;
  Layout layout_;
  std::vector<RankMemory> peers_;
  std::shared_ptr<Arena> arena_;
  std::atomic<std::uint64_t> between_nodes_{0};  // bytes
  std::unique_ptr<NetworkTransport> network_;    // uses the mirrors, so it is destroyed first
};

}  // namespace ringsmith::comm
