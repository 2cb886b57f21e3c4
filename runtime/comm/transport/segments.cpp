#include "runtime/comm/transport/segments.hpp"

#include <algorithm>
#include <optional>
#include <sys/socket.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/rdma/rdma_transport.hpp"
#include "runtime/comm/transport/tcp/tcp_transport.hpp"

namespace ringsmith::comm {

namespace {

constexpr int kMostRanks = 64;  // limited by the number of sources of one reduction

// With Transport::automatic, the ranks may be connected by TCP.
std::size_t slot_bytes_for(Transport transport) {
  const bool sockets = transport == Transport::automatic || transport == Transport::tcp;
  return sockets ? kWireSlotBytes : kSlotBytes;
}

void make_counters(std::byte* segment, const Layout& layout, int world) {
  new (segment) Control;
  for (int peer = 0; peer < world; ++peer)
    for (int index = 0; index < kLanes; ++index) new (segment + layout.lane(peer, index)) Lane;
}

}  // namespace

Segments::Segments(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      layout_(bootstrap_->size(), slot_bytes_for(options.transport)) {
  const int world = bootstrap_->size();
  require(world <= kMostRanks, "a group of " + std::to_string(world) + " ranks: at most " +
                                   std::to_string(kMostRanks) + " are supported");
  const Bytes fixed(layout_.arena());
  auto segment = Segment::create(fixed + communication_space(fixed, world));
  segment->commit(Bytes(0), Bytes(layout_.first_slot()));
  segment->commit(Bytes(layout_.flight()), Bytes(sizeof(Flight)));
  make_counters(segment->data(), layout_, world);
  new (segment->data() + layout_.flight()) Flight;
  arena_ = std::make_shared<Arena>(segment, Bytes(layout_.arena()));
  auto links = connect_mesh(*bootstrap_, segment->file(), options);
  for (std::size_t r = 0; r < links.size(); ++r) {
    RankMemory p;
    p.link = std::move(links[r]);
    if (p.link.remote) {
      p.segment = Segment::create(Bytes(layout_.arena()));
      make_counters(p.segment->data(), layout_, world);
    } else {
      p.segment = static_cast<int>(r) == rank_ ? segment : Segment::open(std::move(p.link.memory));
    }
    p.base = p.segment->data();
    peers_.push_back(std::move(p));
  }
  commit_slots(*segment);
  connect_network(options);
}

// Commits the slots for ranks that share this memory. The slots for remote ranks are rarely used.
void Segments::commit_slots(Segment& segment) const {
  for (int r = 0; r < size(); ++r)
    for (int index = 0; index < kLanes && r != rank_ && !link(r).remote; ++index)
      segment.commit(Bytes(layout_.slots(r, index)),
                     Bytes((kSlots - 1) * layout_.slot_bytes() + kSlotBytes));
}

void Segments::connect_network(const GroupOptions& options) {
  std::vector<bool> remote;
  std::vector<std::byte*> mirrors;
  std::vector<int> doorbells;
  bool same_machine = true;
  for (const RankMemory& p : peers_) {
    remote.push_back(p.link.remote);
    mirrors.push_back(p.link.remote ? p.segment->data() : nullptr);
    if (p.link.socket.valid()) doorbells.push_back(p.link.socket.get());
    same_machine = same_machine && p.link.same_host;
  }
  // All ranks make the same decision: if one rank has a remote peer, every rank has one.
  if (std::find(remote.begin(), remote.end(), true) == remote.end()) return;
  const bool rdma = options.transport == Transport::rdma;
  std::optional<rdma::Adapter> adapter;
  if (rdma) adapter = rdma::open_adapter(options.interface, rank_);
  // With RDMA, the sockets only show that a process is alive.
  const tcp::Wiring wiring{rdma ? "" : options.interface, rdma ? 1 : options.sockets,
                           options.timeout};
  auto links = tcp::connect_all(*bootstrap_, remote, wiring, same_machine);
  if (rdma)
    network_ = std::make_unique<rdma::RdmaTransport>(
        *bootstrap_, std::move(*adapter), std::move(links), base(rank_), mirrors, layout_,
        Doorbells(std::move(doorbells)), options.timeout);
  else
    network_ = std::make_unique<tcp::TcpTransport>(std::move(links), mirrors, layout_,
                                                   Doorbells(std::move(doorbells)), options);
}

std::vector<std::string> Segments::describe() const {
  std::vector<std::string> facts;
  for (int r = 0; r < size(); ++r)
    if (on_network(r)) facts.push_back(network_->describe(r) + " on " + link(r).host);
  return facts;
}

std::vector<int> Segments::node_of() const {
  std::vector<int> nodes;
  for (const RankMemory& p : peers_) nodes.push_back(p.link.node);
  return nodes;
}

int Segments::ranks_on_machine() const {
  return static_cast<int>(
      std::ranges::count_if(peers_, [](const RankMemory& p) { return p.link.same_machine; }));
}

bool Segments::is_gone(int rank) const {
  if (rank == rank_) return false;
  return on_network(rank) ? !network_->broken(rank).empty() : hung_up(link(rank).socket);
}

void Segments::wake_by_socket(int rank) const {
  const char byte = 0;  // if the socket is full, its unread bytes wake the peer anyway
  (void)::send(link(rank).socket.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace ringsmith::comm
