// One reliable connection (RC queue pair) to a remote rank.
//
//     ours                                       theirs
//     segment --RDMA WRITE-------------------->  mirror of us     bytes: no CPU there takes part
//             --RDMA WRITE WITH IMMEDIATE----->  mirror + a completion that says which counter
//
// The immediate value names the counter and the low bits of its new value; the receiver stores it
// when the completion comes, and by then all earlier writes of the connection are in place. Writes
// themselves ask for no completion: every kSignalEvery-th does, which says that all before it are
// done and their places in the send queue are free again.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>

#include "runtime/comm/transport/layout.hpp"
#include "runtime/comm/transport/network_transport.hpp"
#include "runtime/comm/transport/rdma/verbs.hpp"

namespace ringsmith::comm::rdma {

// Where and how a connection is to be made, as its other end needs it.
struct Endpoint {
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;  // the number that its sender starts from, 24 bits
  std::uint32_t key = 0;           // of the mirror up to its first slot
  std::uint32_t slots_key = 0;     // of the slots in it that are for that end
  std::uint64_t address = 0;       // of the mirror
};
struct PortAddress {
  std::uint16_t lid = 0;
  ibv_gid gid{};
  ibv_mtu mtu = IBV_MTU_1024;
};

// Which counter, and what its value became.
struct Immediate {
  static constexpr unsigned kValueBits = 14;
  [[nodiscard]] static std::uint32_t pack(std::size_t offset, std::uint64_t value);
  [[nodiscard]] static std::size_t offset(std::uint32_t immediate);
  // The new value, from what the counter was: it grows by less than 2^kValueBits at a time.
  [[nodiscard]] static std::uint64_t value(std::uint32_t immediate, std::uint64_t before);
};

class Connection {
 public:
  // Requests under way at a time. A peer that does not look gets at most a message for each slot
  // and each credit of the lanes, and two answers to the agreement barrier: those fit into
  // kReceives.
  static constexpr int kSends = 128, kSignalEvery = kSends / 2, kReceives = 64;

  // Of the mirror, only what the peer writes for `rank` is registered: the rest stays untouched.
  Connection(const Device& device, ibv_cq* completions, std::byte* mirror, const Layout& layout,
             int rank);

  [[nodiscard]] Endpoint endpoint() const;
  void connect(const Device& device, const Endpoint& theirs, const PortAddress& port);

  // The bytes must be in the memory of `key` (this rank's segment).
  void write(std::size_t offset, const std::byte* from, std::size_t size, std::uint32_t key);
  void publish(std::size_t offset, std::uint64_t value);
  // Posts what has been noted and has room. Empty, or the error.
  [[nodiscard]] std::string post();
  [[nodiscard]] bool empty() const { return noted_.empty(); }
  [[nodiscard]] bool all_done() const { return noted_.empty() && posted_ == done_; }
  void sent(std::uint64_t id) { done_ = id; }  // a completion of ours: up to this one
  void ask_for_completion();                   // of all that was posted
  [[nodiscard]] std::string await_more();      // makes room for another completion of theirs

  [[nodiscard]] std::uint32_t number() const { return queue_pair_->qp_num; }

 private:
  struct Request {
    std::uint64_t offset = 0;
    const std::byte* data = nullptr;  // null: in `copy`
    std::uint32_t size = 0, key = 0, immediate = 0;
    bool counter = false;
    std::array<std::byte, NetworkTransport::kCopied> copy{};
  };
  [[nodiscard]] int post_one(const Request& request, bool signalled);

  std::byte* base_;
  std::size_t first_slot_;
  MemoryRegion mirror_, slots_;
  QueuePair queue_pair_;
  // Random: who could guess it, with the queue pair's number, could forge packets from afar.
  std::uint32_t first_packet_ = std::random_device()() & 0xffffff;
  Endpoint theirs_;
  std::deque<Request> noted_;
  std::uint64_t posted_ = 0, done_ = 0;  // requests
};

}  // namespace ringsmith::comm::rdma
