#include "runtime/comm/transport/mesh.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <poll.h>
#include <random>
#include <sched.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <tuple>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_name.hpp"

namespace ringsmith::comm {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw CommError("connecting the ranks of this host: " + what + ": " + std::strerror(errno));
}

std::string first_word(const char* path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

std::string machine_identity() { return first_word("/proc/sys/kernel/random/boot_id"); }

// Two processes of one machine and one of these reach each other by an abstract Unix socket.
std::string network_namespace() {
  std::array<char, 64> netns{};
  if (readlink("/proc/self/ns/net", netns.data(), netns.size() - 1) < 0) netns[0] = '?';
  return netns.data();
}

std::string allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::string cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) cpus += CPU_ISSET(cpu, &set) ? '1' : '0';
  while (cpus.size() > 1 && cpus.back() == '0') cpus.pop_back();
  return cpus;
}

// The abstract namespace: the address is a name that starts with a zero byte and has no file.
socklen_t make_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string random_name() {
  std::random_device random;
  std::ostringstream name;
  name << "ringsmith-" << getpid() << '-' << std::hex << random() << random() << random();
  return name.str();
}

bool readable(int fd, Deadline deadline) {
  while (true) {
    pollfd entry{fd, POLLIN, 0};
    const int n = poll(&entry, 1, deadline.poll_ms());
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) fail("poll");
    if (n == 0 && deadline.passed()) return false;
  }
}

// One byte or more must accompany a descriptor: the sender's rank. False: the other end has gone.
bool send_hello(int socket, int rank, int fd) {
  iovec data{&rank, sizeof rank};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> space{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof rank);
}

// Whose greeting it is, and its memory; rank -1: none came, or the other end has gone.
std::pair<int, Descriptor> receive_hello(int socket, Deadline deadline) {
  if (!readable(socket, deadline)) return {-1, Descriptor()};
  int rank = -1;
  iovec data{&rank, sizeof rank};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof rank))
    return {-1, Descriptor()};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    throw CommError("connecting the ranks of this host: a greeting came without memory");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return {rank, Descriptor(fd)};
}

struct Record {
  std::string machine, network, host, address, cpus, transport;
  pid_t pid = 0;
  int ranks_per_node = 0;
  int part = 0;  // of its host, where nodes are smaller than hosts

  [[nodiscard]] std::string str() const {
    return machine + ' ' + network + ' ' + host + ' ' + address + ' ' + std::to_string(pid) + ' ' +
           cpus + ' ' + transport + ' ' + std::to_string(ranks_per_node) + ' ' +
           std::to_string(part);
  }
  static Record parse(const std::string& text) {
    Record r;
    std::istringstream in(text);
    if (!(in >> r.machine >> r.network >> r.host >> r.address >> r.pid >> r.cpus >> r.transport >>
          r.ranks_per_node >> r.part))
      throw CommError("corrupt bootstrap record '" + text + "'");
    return r;
  }
};

// Nodes in the order of their first ranks.
void number_nodes(const std::vector<std::string>& records, std::vector<PeerLink>& links) {
  std::map<std::tuple<std::string, std::string, int>, int> known;
  for (std::size_t r = 0; r < records.size(); ++r) {
    const Record record = Record::parse(records[r]);
    const auto next = static_cast<int>(known.size());
    links[r].node =
        known.try_emplace({record.machine, record.network, record.part}, next).first->second;
  }
}

// Before anybody is called on: whoever finds a mistake goes away.
void check_options(const std::vector<std::string>& records) {
  const auto differ = [](const char* option, const std::string& first, std::size_t r,
                         const std::string& other) {
    if (other != first)
      throw UsageError("rank 0 was started with --" + std::string(option) + " " + first +
                       " and rank " + std::to_string(r) + " with " + other +
                       ": give all ranks the same");
  };
  const Record first = Record::parse(records.front());
  for (std::size_t r = 1; r < records.size(); ++r) {
    const Record other = Record::parse(records[r]);
    differ("transport", first.transport, r, other.transport);
    differ("ranks-per-node", std::to_string(first.ranks_per_node), r,
           std::to_string(other.ranks_per_node));
  }
}

[[noreturn]] void lost(int rank, int peer, const PeerLink& link) {
  Where where;
  where.rank = rank;
  where.peer = peer;
  where.peer_host = link.host;
  where.peer_pid = link.pid;
  throw PeerLost("rank " + std::to_string(peer) + " (pid " + std::to_string(link.pid) + " on " +
                     link.host +
                     ") is gone, or silent, since before the ranks of this host were "
                     "connected",
                 where);
}

}  // namespace

std::vector<PeerLink> connect_mesh(Bootstrap& bootstrap, const Descriptor& memory,
                                   const GroupOptions& options) {
  const Transport transport = options.transport;
  const Deadline deadline = Deadline::in(options.timeout);
  const int rank = bootstrap.rank(), world = bootstrap.size();
  const Record mine{
      machine_identity(),
      network_namespace(),
      host_name(),
      random_name(),
      allowed_cpus(),
      std::string(name_of(transport)),
      getpid(),
      options.ranks_per_node,
      bootstrap.node().value_or(options.ranks_per_node > 0 ? rank / options.ranks_per_node : 0)};

  sockaddr_un address{};
  socklen_t length = make_address(mine.address, address);
  const Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) fail("socket");
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) fail("bind");
  if (listen(listener.get(), world) != 0) fail("listen");

  const std::vector<std::string> records = bootstrap.all_gather(mine.str());
  check_options(records);
  std::vector<PeerLink> links(records.size());
  number_nodes(records, links);
  int above = 0;  // local ranks that will connect
  for (int r = 0; r < world; ++r) {
    const Record theirs = Record::parse(records[static_cast<std::size_t>(r)]);
    PeerLink& link = links[static_cast<std::size_t>(r)];
    link.pid = theirs.pid;
    link.cpus = theirs.cpus;
    link.host = theirs.host;
    link.same_machine = theirs.machine == mine.machine;
    link.same_host = link.same_machine && theirs.network == mine.network;
    link.remote = r != rank && (link.node != links[static_cast<std::size_t>(rank)].node ||
                                transport == Transport::tcp || transport == Transport::rdma);
    if (link.remote && transport == Transport::shm)
      throw UsageError(
          "rank " + std::to_string(rank) + " is on host " + mine.host + " and rank " +
          std::to_string(r) + " on " + theirs.host +
          ", which is another node: shared memory does not reach across hosts, network "
          "namespaces or --ranks-per-node; start all ranks on one host, or use "
          "--transport auto");
    if (link.remote) continue;
    if (r > rank) ++above;
    if (r >= rank) continue;
    // Connecting does not wait for accept(): the listener's queue holds all ranks.
    link.socket = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    length = make_address(theirs.address, address);
    if (connect(link.socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        !send_hello(link.socket.get(), rank, memory.get()))
      lost(rank, r, link);
  }
  while (above > 0) {
    if (!readable(listener.get(), deadline)) {
      int missing = rank + 1;
      while (links[static_cast<std::size_t>(missing)].remote ||
             links[static_cast<std::size_t>(missing)].socket.valid())
        ++missing;
      lost(rank, missing, links[static_cast<std::size_t>(missing)]);
    }
    Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) fail("accept");
    auto [peer, file] = receive_hello(socket.get(), deadline);
    if (peer < 0) continue;  // it has gone, and will be missing
    if (peer <= rank || peer >= world)
      throw CommError("connecting the ranks of this host: a stranger called itself rank " +
                      std::to_string(peer));
    PeerLink& link = links[static_cast<std::size_t>(peer)];
    if (!send_hello(socket.get(), rank, memory.get())) lost(rank, peer, link);
    --above;
    link.socket = std::move(socket);
    link.memory = std::move(file);
  }
  for (int r = 0; r < rank; ++r) {
    PeerLink& link = links[static_cast<std::size_t>(r)];
    if (link.remote) continue;
    auto [peer, file] = receive_hello(link.socket.get(), deadline);
    if (peer != r) lost(rank, r, link);
    link.memory = std::move(file);
  }
  return links;
}

bool on_one_host(Bootstrap& bootstrap) {
  const std::string mine = machine_identity() + ' ' + network_namespace();
  const auto all = bootstrap.all_gather(mine);
  return std::all_of(all.begin(), all.end(), [&](const auto& theirs) { return theirs == mine; });
}

bool hung_up(const Descriptor& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace ringsmith::comm
