#include "runtime/comm/transport/host.hpp"

#include <algorithm>
#include <cctype>
#include <exception>
#include <optional>
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/comm/transport/rdma/rdma_wires.hpp"
#include "runtime/comm/transport/shm/reserve.hpp"
#include "runtime/comm/transport/tcp/tcp_wires.hpp"

namespace ringsmith::comm {

namespace {

using std::chrono::microseconds;

constexpr int kMostRanks = 64;  // sources of one reduction

// More ranks of this machine than CPUs that they may run on together.
bool oversubscribed(const std::vector<PeerLink>& links) {
  std::string any;
  std::size_t ranks = 0;
  for (const PeerLink& link : links) {
    if (!link.same_machine) continue;
    ++ranks;
    any.resize(std::max(any.size(), link.cpus.size()), '0');
    for (std::size_t c = 0; c < link.cpus.size(); ++c)
      if (link.cpus[c] == '1') any[c] = '1';
  }
  return static_cast<std::size_t>(std::count(any.begin(), any.end(), '1')) < ranks;
}

// TCP may still be what joins the ranks where nothing was asked for.
std::size_t slot_bytes_for(Transport transport) {
  const bool sockets = transport == Transport::automatic || transport == Transport::tcp;
  return sockets ? kWireSlotBytes : kSlotBytes;
}

// A name for files: "world", or "ranks-4-6" of "in the group of ranks 4, 6".
std::string short_name(const std::string& scope) {
  const std::size_t ranks = scope.find("ranks");
  if (ranks == std::string::npos) return "world";
  std::string name;
  for (const char c : scope.substr(ranks))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += c;
    else if (name.back() != '-')
      name += '-';
  return name.substr(0, 60);
}

void make_counters(std::byte* segment, const Layout& layout, int world) {
  new (segment) Control;
  for (int peer = 0; peer < world; ++peer)
    for (int index = 0; index < kLanes; ++index) new (segment + layout.lane(peer, index)) Lane;
}

}  // namespace

void Host::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");  // `yield` does nothing where a core has one thread
#endif
}

Host::Host(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      timeout_(options.timeout),
      layout_(bootstrap_->size(), slot_bytes_for(options.transport)) {
  const int world = bootstrap_->size();
  require(world <= kMostRanks, "a group of " + std::to_string(world) + " ranks: at most " +
                                   std::to_string(kMostRanks) + " are supported");
  const Bytes fixed(layout_.arena());
  auto segment = Segment::create(fixed + communication_space(fixed, world));
  segment->commit(Bytes(0), Bytes(layout_.first_slot()));
  segment->commit(Bytes(layout_.flight()), Bytes(sizeof(Flight)));
  make_counters(segment->data(), layout_, world);
  arena_ = std::make_shared<Arena>(segment, Bytes(layout_.arena()));
  group_ = short_name(bootstrap_->scope());
  sites_.emplace(std::launder(reinterpret_cast<Control*>(segment->data()))->sites);
  flight_.emplace(new (segment->data() + layout_.flight()) Flight);
  auto links = connect_mesh(*bootstrap_, segment->file(), options);
  // Spinning is for ranks that have a core each.
  foreground_ =
      oversubscribed(links) ? Patience{0, microseconds(1000)} : Patience{4000, microseconds(2000)};
  background_ = {0, microseconds(50)};
  for (std::size_t r = 0; r < links.size(); ++r) {
    Peer p;
    p.link = std::move(links[r]);
    if (p.link.remote) {
      p.segment = Segment::create(Bytes(layout_.arena()));
      make_counters(p.segment->data(), layout_, world);
    } else {
      p.segment = static_cast<int>(r) == rank_ ? segment : Segment::open(std::move(p.link.memory));
    }
    p.control = std::launder(reinterpret_cast<Control*>(p.segment->data()));
    peers_.push_back(std::move(p));
  }
  commit_slots(*segment);
  connect_wires(options);
  if (bootstrap_->ends_survivors()) speak_before_the_end();
  keep_flight_in(options.flight_folder);
}

void Host::speak_before_the_end() {
  std::vector<LastWords::Peer> others;
  for (int r = 0; r < size(); ++r)
    if (r != rank_)
      others.push_back({r, peer(r).link.pid, peer(r).link.host,
                        on_wire(r) ? wires_->socket(r) : peer(r).link.socket.get(), on_wire(r),
                        peer(r).control});
  last_words_ = std::make_unique<LastWords>(rank_, std::move(others));
}

// What is written for ranks that share this memory; slots for the others are rarely used.
void Host::commit_slots(Segment& segment) const {
  for (int r = 0; r < size(); ++r)
    for (int index = 0; index < kLanes && r != rank_ && !peer(r).link.remote; ++index)
      segment.commit(Bytes(layout_.slots(r, index)),
                     Bytes((kSlots - 1) * layout_.slot_bytes() + kSlotBytes));
}

void Host::connect_wires(const GroupOptions& options) {
  std::vector<bool> remote;
  std::vector<std::byte*> mirrors;
  std::vector<int> doorbells;
  bool same_machine = true;
  for (const Peer& p : peers_) {
    remote.push_back(p.link.remote);
    mirrors.push_back(p.link.remote ? p.segment->data() : nullptr);
    if (p.link.socket.valid()) doorbells.push_back(p.link.socket.get());
    same_machine = same_machine && p.link.same_host;
  }
  // On every rank alike: with more than one host, each rank has a remote one.
  if (std::find(remote.begin(), remote.end(), true) == remote.end()) return;
  const bool rdma = options.transport == Transport::rdma;
  std::optional<rdma::Device> device;
  if (rdma) device = rdma::open_device(options.interface, rank_);
  // Beside RDMA they only show that a process lives.
  const tcp::Wiring wiring{rdma ? "" : options.interface, rdma ? 1 : options.sockets, timeout_};
  auto links = tcp::connect_all(*bootstrap_, remote, wiring, same_machine);
  if (rdma)
    wires_ = std::make_unique<rdma::RdmaWires>(*bootstrap_, std::move(*device), std::move(links),
                                               base(rank_), mirrors, layout_,
                                               Doorbells(std::move(doorbells)), timeout_);
  else
    wires_ = std::make_unique<tcp::TcpWires>(std::move(links), mirrors, layout_,
                                             Doorbells(std::move(doorbells)), timeout_);
}

Host::~Host() {
  mine().board.left.store(std::uncaught_exceptions() > 0 ? kThrownOut : kInOrder);
  for (int r = 0; r < size(); ++r)
    if (r != rank_ && !on_wire(r)) ring(r);
  show_board();
}

std::vector<std::string> Host::describe() const {
  std::vector<std::string> facts;
  for (int r = 0; r < size(); ++r)
    if (on_wire(r)) facts.push_back(wires_->describe(r) + " on " + peer(r).link.host);
  return facts;
}

std::vector<int> Host::node_of() const {
  std::vector<int> nodes;
  for (const Peer& p : peers_) nodes.push_back(p.link.node);
  return nodes;
}

void Host::enter(const Call& call, std::uint64_t sequence, Site site) {
  Board& board = mine().board;
  const Sites::Number at = sites_->number_of(site);
  if (at.fresh) expose_to_all(&mine().sites[at.value], sizeof(SiteText));
  flight_->begin(call.pack(), call.count, sequence, at.value);
  board.site.store(at.value, std::memory_order_release);  // who sees it sees its text
  board.call.store(call.pack(), std::memory_order_relaxed);
  board.count.store(call.count, std::memory_order_relaxed);
  board.sequence.store(sequence, std::memory_order_relaxed);
  board.step.store(-1, std::memory_order_relaxed);
  board.busy.store(1, std::memory_order_relaxed);
}

void Host::leave() {
  mine().board.busy.store(0, std::memory_order_relaxed);
  flight_->end();
}

}  // namespace ringsmith::comm
