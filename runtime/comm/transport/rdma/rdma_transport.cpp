#include "runtime/comm/transport/rdma/rdma_transport.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <exception>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <sstream>
#include <thread>

#include "runtime/base/deadline.hpp"
#include "runtime/comm/transport/rdma/verbs.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"

namespace ringsmith::comm::rdma {

namespace {

constexpr int kPollsBetweenLooks = 256;
constexpr const char* kReady = "ready";

std::string text_of(const ibv_gid& gid) {
  std::string text(INET6_ADDRSTRLEN, '\0');
  inet_ntop(AF_INET6, gid.raw, text.data(), static_cast<socklen_t>(text.size()));
  return text.c_str();
}

}  // namespace

RdmaTransport::RdmaTransport(Bootstrap& bootstrap, Adapter adapter,
                             std::vector<tcp::PeerSockets> links, std::byte* segment,
                             const std::vector<std::byte*>& mirrors, const Layout& layout,
                             Doorbells doorbells, std::chrono::milliseconds timeout)
    : NetworkTransport(std::move(doorbells), timeout),
      adapter_(std::move(adapter)),
      peers_(links.size()) {
  const auto remote = static_cast<int>(
      std::ranges::count_if(mirrors, [](const std::byte* m) { return m != nullptr; }));
  channel_.reset(ibv_create_comp_channel(adapter_.context.get()));
  if (!channel_) fail("making a completion channel");
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  const int room = remote * (Connection::kSends + Connection::kReceives);
  completions_.reset(ibv_create_cq(adapter_.context.get(), room, nullptr, channel_.get(), 0));
  if (!completions_) fail("making a completion queue of " + std::to_string(room));
  segment_ = register_memory(adapter_, segment, layout.arena(), IBV_ACCESS_LOCAL_WRITE);
  for (std::size_t r = 0; r < links.size(); ++r) {
    peers_[r].link = std::move(links[r]);
    peers_[r].mirror = mirrors[r];
    if (mirrors[r] != nullptr)
      peers_[r].connection = std::make_unique<Connection>(adapter_, completions_.get(), mirrors[r],
                                                          layout, bootstrap.rank());
  }
  exchange(bootstrap);
}

// A rank's record has its port, then the queue pair, first packet number, keys and address for
// every rank.
void RdmaTransport::exchange(Bootstrap& bootstrap) {
  std::ostringstream mine;
  mine << adapter_.lid << ' ' << text_of(adapter_.gid) << ' ' << static_cast<int>(adapter_.mtu);
  for (const RdmaPeer& peer : peers_) {
    const Endpoint e = peer.connection ? peer.connection->endpoint() : Endpoint{};
    mine << std::hex << ' ' << e.queue_pair << ' ' << e.first_packet << ' ' << e.key << ' '
         << e.slots_key << ' ' << e.address;
  }
  const auto records = bootstrap.all_gather(mine.str());
  std::string trouble;
  for (std::size_t r = 0; r < peers_.size() && trouble.empty(); ++r) {
    if (!peers_[r].connection) continue;
    std::istringstream in(records[r]);
    PortAddress port;
    std::string gid;
    int mtu = 0;
    in >> port.lid >> gid >> mtu;
    port.mtu = static_cast<ibv_mtu>(mtu);
    Endpoint theirs;
    for (int e = 0; e <= bootstrap.rank(); ++e)
      in >> std::hex >> theirs.queue_pair >> theirs.first_packet >> theirs.key >>
          theirs.slots_key >> theirs.address;
    if (!in || inet_pton(AF_INET6, gid.c_str(), port.gid.raw) != 1)
      throw CommError("corrupt bootstrap record '" + records[r] + "'");
    try {
      peers_[r].connection->connect(adapter_, theirs, port);
    } catch (const CommError& e) {
      trouble = "to rank " + std::to_string(r) + " (GID " + gid + "): " + e.what();
    }
  }
  // No rank sends before all can receive, and a failure is reported on all ranks.
  const auto outcomes = bootstrap.all_gather(trouble.empty() ? kReady : trouble);
  for (std::size_t r = 0; r < outcomes.size(); ++r)
    if (outcomes[r] != kReady)
      throw CommError("rank " + std::to_string(r) + " cannot connect " + outcomes[r]);
}

RdmaTransport::~RdmaTransport() {
  const Deadline deadline = Deadline::in(timeout());
  const auto under_way = [](const RdmaPeer& w) {
    return w.connection && w.broken.empty() && !w.connection->all_done();
  };
  try {
    RdmaTransport::progress();
    for (RdmaPeer& peer : peers_)
      if (under_way(peer)) peer.connection->ask_for_completion();
    while (std::ranges::any_of(peers_, under_way) && !deadline.passed()) {
      RdmaTransport::progress();
      std::this_thread::yield();
    }
  } catch (const std::exception&) {  // the queue is broken, so stop waiting
  }
}

void RdmaTransport::write(int rank, std::size_t offset, const std::byte* from, std::size_t size) {
  RdmaPeer& to = peer(rank);
  if (to.broken.empty()) to.connection->write(offset, from, size, segment_->lkey);
}

void RdmaTransport::publish(int rank, std::size_t offset, std::uint64_t value) {
  RdmaPeer& to = peer(rank);
  if (!to.broken.empty()) return;
  to.connection->publish(offset, value);
  post(to);
}

void RdmaTransport::post(RdmaPeer& peer) {
  if (std::string trouble = peer.connection->post(); !trouble.empty())
    peer.broken = std::move(trouble);
}

void RdmaTransport::progress() {
  take_completions();
  for (RdmaPeer& peer : peers_)
    if (peer.connection && peer.broken.empty() && !peer.connection->empty()) post(peer);
  if (++looks_ >= kPollsBetweenLooks) look_at_sockets();
}

void RdmaTransport::take_completions() {
  std::array<ibv_wc, 16> batch;
  for (;;) {
    const int n = ibv_poll_cq(completions_.get(), static_cast<int>(batch.size()), batch.data());
    if (n < 0) throw CommError("rdma: the completion queue cannot be read: it has overrun");
    for (int i = 0; i < n; ++i) take(batch[static_cast<std::size_t>(i)]);
    taken_ += static_cast<std::uint64_t>(n);
    if (n < static_cast<int>(batch.size())) return;
  }
}

void RdmaTransport::take(const ibv_wc& completion) {
  const auto found = std::ranges::find_if(peers_, [&](const RdmaPeer& w) {
    return w.connection && w.connection->number() == completion.qp_num;
  });
  if (found == peers_.end()) return;
  RdmaPeer& peer = *found;
  if (completion.status != IBV_WC_SUCCESS) {
    if (peer.broken.empty()) peer.broken = explain(completion);
    return;
  }
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
    return peer.connection->sent(completion.wr_id);
  const std::uint32_t immediate = ntohl(completion.imm_data);
  auto* const counter = std::launder(
      reinterpret_cast<std::atomic<std::uint64_t>*>(peer.mirror + Immediate::offset(immediate)));
  counter->store(Immediate::value(immediate, counter->load(std::memory_order_relaxed)),
                 std::memory_order_release);
  if (std::string trouble = peer.connection->await_more(); !trouble.empty() && peer.broken.empty())
    peer.broken = std::move(trouble);
}

void RdmaTransport::look_at_sockets() {
  looks_ = 0;
  for (RdmaPeer& peer : peers_)
    if (peer.connection && peer.broken.empty() && hung_up(peer.link.socket())) {
      take_completions();  // for requests that completed before the hang-up
      if (peer.broken.empty()) peer.broken = "its process has ended";
    }
}

bool RdmaTransport::flushed(int& to_whom) const {
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r].connection && peers_[r].broken.empty() && !peers_[r].connection->empty()) {
      to_whom = static_cast<int>(r);
      return false;
    }
  return true;
}

void RdmaTransport::sleep(std::chrono::milliseconds most) {
  // Completions after this request cause an event; earlier completions must be polled for.
  const std::uint64_t before = taken_;
  if (const int error = ibv_req_notify_cq(completions_.get(), 0); error != 0)
    fail("requesting a notification of completions", error);
  take_completions();
  if (taken_ != before) return;
  std::vector<pollfd> entries{{channel_->fd, POLLIN, 0}};
  for (const RdmaPeer& peer : peers_)
    if (peer.connection && peer.broken.empty())
      entries.push_back({peer.link.socket().get(), POLLRDHUP, 0});
  doorbells_.watch(entries);
  if (poll(entries.data(), entries.size(), static_cast<int>(most.count())) <= 0) return;
  if (entries[0].revents != 0) {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_.get(), &which, &context) == 0) ibv_ack_cq_events(which, 1);
  }
  doorbells_.silence(entries);
  look_at_sockets();
}

std::string RdmaTransport::describe(int rank) const {
  return "rank " + std::to_string(rank) + ": rdma, " + adapter_.str();
}

}  // namespace ringsmith::comm::rdma
