// One reliable connection (RC queue pair) to a remote rank.
//
//     this rank                                  the peer
//     segment --RDMA WRITE-------------------->  mirror           bytes: its CPU is not involved
//             --RDMA WRITE WITH IMMEDIATE----->  mirror + a completion that says which counter
//
// The immediate value holds the counter's position and the low bits of its new value. The receiver
// stores the counter when the completion arrives, because by then all earlier writes of the
// connection are in place. A completion at the sender means that its request and all earlier ones
// are done, and that their entries in the send queue are free again. Every kSignalEvery-th
// request asks for a completion, and so does ask_for_completion().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>

#include "runtime/comm/transport/layout.hpp"
#include "runtime/comm/transport/network_transport.hpp"
#include "runtime/comm/transport/rdma/verbs.hpp"

namespace ringsmith::comm::rdma {

// The parameters of a connection that its other end needs.
struct Endpoint {
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;  // the sender's first packet number, 24 bits
  std::uint32_t key = 0;           // of the mirror's memory before its first slot
  std::uint32_t slots_key = 0;     // of the mirror's slots that the other end writes
  std::uint64_t address = 0;       // of the mirror
};
struct PortAddress {
  std::uint16_t lid = 0;
  ibv_gid gid{};
  ibv_mtu mtu = IBV_MTU_1024;
};

// A counter's position and its new value, packed into 32 bits.
struct Immediate {
  static constexpr unsigned kValueBits = 14;
  [[nodiscard]] static std::uint32_t pack(std::size_t offset, std::uint64_t value);
  [[nodiscard]] static std::size_t offset(std::uint32_t immediate);
  // Returns the new value, given the previous one. Values grow by less than 2^kValueBits at a time.
  [[nodiscard]] static std::uint64_t value(std::uint32_t immediate, std::uint64_t before);
};

class Connection {
 public:
  // Maximum numbers of requests in flight. kReceives suffices for a peer that does not poll: it
  // gets at most one message for each slot and each credit of the lanes, and two answers of the
  // agreement barrier.
  static constexpr int kSends = 128, kSignalEvery = kSends / 2, kReceives = 64;

  // Registers only the parts of the mirror that the peer writes for `rank`.
  Connection(const Adapter& adapter, ibv_cq* completions, std::byte* mirror, const Layout& layout,
             int rank);

  [[nodiscard]] Endpoint endpoint() const;
  void connect(const Adapter& adapter, const Endpoint& theirs, const PortAddress& port);

  // Queues a write. The bytes must be in the memory of `key` (this rank's segment).
  void write(std::size_t offset, const std::byte* from, std::size_t size, std::uint32_t key);
  void publish(std::size_t offset, std::uint64_t value);
  // Posts as many queued requests as the send queue has room for. Returns "", or the error.
  [[nodiscard]] std::string post();
  [[nodiscard]] bool empty() const { return noted_.empty(); }
  [[nodiscard]] bool all_done() const { return noted_.empty() && posted_ == done_; }
  void sent(std::uint64_t id) { done_ = id; }  // all sends up to this one have completed
  void ask_for_completion();                   // of all posted requests
  [[nodiscard]] std::string await_more();      // posts a receive for one more message

  [[nodiscard]] std::uint32_t number() const { return queue_pair_->qp_num; }

 private:
  struct Request {
    std::uint64_t offset = 0;
    const std::byte* data = nullptr;  // null: the bytes are in `copy`
    std::uint32_t size = 0, key = 0, immediate = 0;
    bool counter = false;
    std::array<std::byte, NetworkTransport::kCopied> copy{};
  };
  [[nodiscard]] int post_one(const Request& request, bool signalled);

  std::byte* base_;
  std::size_t first_slot_;
  MemoryRegion mirror_, slots_;
  QueuePair queue_pair_;
  // Random, because anyone who knows this number and the queue pair's can forge packets.
  std::uint32_t first_packet_ = std::random_device()() & 0xffffff;
  Endpoint theirs_;
  std::deque<Request> noted_;
  std::uint64_t posted_ = 0, done_ = 0;  // requests
};

}  // namespace ringsmith::comm::rdma
