#include "runtime/comm/transport/shm/mesh.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <poll.h>
#include <random>
#include <sched.h>
#include <sstream>
#include <tuple>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

// Abstract Unix sockets connect processes only within one network namespace.
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

std::string random_name() {
  std::random_device random;
  return fmt::format("ringsmith-{}-{:x}{:x}{:x}", getpid(), random(), random(), random());
}

struct HostRecord {
  std::string machine, network, host, address, cpus;
  Word word{};
  pid_t pid = 0;
  int part = 0;                    // differs between the nodes of one host
  std::size_t settings_bytes = 0;  // length of its settings as text
  std::uint64_t settings_hash = 0;

  [[nodiscard]] std::string str() const {
    return machine + ' ' + network + ' ' + host + ' ' + address + ' ' + std::to_string(pid) + ' ' +
           cpus + ' ' + std::to_string(word[0]) + ' ' + std::to_string(word[1]) + ' ' +
           std::to_string(part) + ' ' + std::to_string(settings_bytes) + ' ' +
           std::to_string(settings_hash);
  }
  static HostRecord parse(const std::string& text) {
    HostRecord r;
    std::istringstream in(text);
    if (!(in >> r.machine >> r.network >> r.host >> r.address >> r.pid >> r.cpus >> r.word[0] >>
          r.word[1] >> r.part >> r.settings_bytes >> r.settings_hash))
      throw CommError("corrupt bootstrap record '" + text + "'");
    return r;
  }
};

void number_nodes(const std::vector<HostRecord>& records, std::vector<PeerLink>& links) {
  std::map<std::tuple<std::string, std::string, int>, int> known;
  for (std::size_t r = 0; r < records.size(); ++r) {
    const HostRecord& record = records[r];
    const auto next = static_cast<int>(known.size());
    links[r].node =
        known.try_emplace({record.machine, record.network, record.part}, next).first->second;
  }
}

// Returns the program's settings followed by the group's options: if both differ, the error names a
// setting, because users know its name.
Settings settings_of(const GroupOptions& o) {
  Settings all = o.settings;
  const Settings own{{"GroupOptions::transport", std::string(name_of(o.transport))},
                     {"GroupOptions::ranks_per_node", std::to_string(o.ranks_per_node)},
                     {"GroupOptions::sockets", std::to_string(o.sockets)},
                     {"GroupOptions::checksum", o.checksum ? "true" : "false"},
                     {"GroupOptions::device", o.device.is_cpu() ? "cpu" : "cuda"},
                     {"GroupOptions::engine", std::string(name_of(o.engine))},
                     {"GroupOptions::algorithm", std::string(name_of(o.algorithm))}};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

// Runs before any connection is made, so that all ranks leave with the same message if settings
// differ. The texts are exchanged only if the lengths or hashes in the records differ.
void compare_settings(Bootstrap& bootstrap, const std::string& mine,
                      const std::vector<HostRecord>& records) {
  constexpr std::size_t kTextPiece = 256;  // bytes: less than a record
  std::size_t longest = 0;
  bool equal = true;
  for (const HostRecord& r : records) {
    longest = std::max(longest, r.settings_bytes);
    equal = equal && r.settings_bytes == records.front().settings_bytes &&
            r.settings_hash == records.front().settings_hash;
  }
  if (equal) return;
  std::vector<std::string> texts(records.size());
  for (std::size_t at = 0; at < longest; at += kTextPiece) {
    const auto pieces =
        bootstrap.all_gather("." + mine.substr(std::min(at, mine.size()), kTextPiece));
    for (std::size_t r = 0; r < texts.size(); ++r) texts[r] += pieces[r].substr(1);
  }
  std::map<int, Settings> settings;
  for (std::size_t r = 0; r < texts.size(); ++r)
    settings[static_cast<int>(r)] = parse_settings(texts[r]);
  require_equal(settings);
}

}  // namespace

std::vector<PeerLink> connect_mesh(Bootstrap& bootstrap, const Descriptor& memory,
                                   const GroupOptions& options) {
  const Transport transport = options.transport;
  const int rank = bootstrap.rank(), world = bootstrap.size();
  const std::string settings = to_text(settings_of(options));
  const HostRecord mine{
      machine_identity(),
      network_namespace(),
      host_name(),
      random_name(),
      allowed_cpus(),
      random_word(),
      getpid(),
      bootstrap.node().value_or(options.ranks_per_node > 0 ? rank / options.ranks_per_node : 0),
      settings.size(),
      fnv1a(settings)};

  sockaddr_un address{};
  const socklen_t length = make_address(mine.address, address);
  const Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) fail_to_connect("socket");
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    fail_to_connect("bind");
  // Requests the longest possible queue, because strangers may occupy places in it.
  if (listen(listener.get(), SOMAXCONN) != 0) fail_to_connect("listen");

  std::vector<HostRecord> records;
  for (const std::string& text : bootstrap.all_gather(mine.str()))
    records.push_back(HostRecord::parse(text));
  compare_settings(bootstrap, settings, records);
  std::vector<PeerLink> links(records.size());
  number_nodes(records, links);
  std::vector<std::string> names(links.size());
  for (int r = 0; r < world; ++r) {
    const HostRecord& theirs = records[static_cast<std::size_t>(r)];
    PeerLink& link = links[static_cast<std::size_t>(r)];
    link.word = theirs.word;
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
    names[static_cast<std::size_t>(r)] = theirs.address;
  }
  meet_on_host(bootstrap, memory, listener, names, links, Deadline::in(options.timeout));
  return links;
}

bool hung_up(const Descriptor& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace ringsmith::comm
