// netns-wire: a switch in user space for netns-cluster.sh, for kernels without
// sch_netem.  One AF_PACKET socket per port; every frame that a node sends waits for its
// serialization time (rate) and its delay, or is lost.  Losses are drawn from a seeded generator.
// Frames keep their offload metadata (PACKET_VNET_HDR), so no ethtool is needed.
//
//   netns-wire CONTROL-FILE STATUS-FILE
//
// CONTROL-FILE, read at start and on SIGHUP:
//   generation G seed S
//   PORT MAC up(0|1) rate(bit/s, 0 = unlimited) delay(ns) loss(parts per million)
// STATUS-FILE, written after each read:  "generation G", then per port
//   "PORT frames sent by the node, lost, cut (link down), overflowed".
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <linux/if_packet.h>
#include <map>
#include <net/ethernet.h>
#include <net/if.h>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <vector>

namespace {

using Nanos = std::int64_t;
using Mac = std::array<unsigned char, ETH_ALEN>;
using Bytes = std::vector<unsigned char>;

constexpr Nanos kMaxQueueing = 50'000'000;  // a port queues 50 ms, then drops
constexpr std::size_t kHeader = 10;  // struct virtio_net_hdr; <linux/virtio_net.h> is not C++
constexpr std::size_t kMaxFrame = kHeader + 65536 + ETH_HLEN + 8;

struct Port {
  std::string name;
  int fd = -1;
  bool up = true;
  std::uint64_t rate = 0;
  Nanos delay = 0;
  std::uint32_t loss_ppm = 0;
  Nanos out_free = 0, in_free = 0;  // times at which the wire from / to the node is idle
  std::uint64_t frames = 0, lost = 0, cut = 0, overflow = 0;
};

struct Flight {
  Nanos due;
  std::uint64_t order;
  std::size_t to;
  Bytes frame;
  bool operator>(const Flight& o) const { return due != o.due ? due > o.due : order > o.order; }
};

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "netns-wire: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

Nanos now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

int open_port(const std::string& name) {
  sockaddr_ll a{};
  a.sll_family = AF_PACKET;
  a.sll_protocol = htons(ETH_P_ALL);
  a.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
  if (a.sll_ifindex == 0) die("no interface " + name);
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) die("AF_PACKET");
  const int one = 1, size = 16 << 20;
  if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0) die("PACKET_VNET_HDR");
  if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0)
    die("PACKET_IGNORE_OUTGOING");
  setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE})
    setsockopt(fd, SOL_SOCKET, option, &size, sizeof size);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) die("bind " + name);
  return fd;
}

class Wire {
 public:
  Wire(std::string control, std::string status)
      : control_(std::move(control)), status_(std::move(status)) {
    sigset_t set;
    sigemptyset(&set);
    for (const int s : {SIGHUP, SIGTERM, SIGINT}) sigaddset(&set, s);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (signals_ < 0 || timer_ < 0 || epoll_ < 0) die("set-up");
    watch(signals_, kSignals);
    watch(timer_, kTimer);
    reload();
  }

  void run() {
    std::array<epoll_event, 64> events{};
    for (;;) {
      deliver();
      const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      if (n < 0 && errno != EINTR) die("epoll_wait");
      for (int i = 0; i < n; ++i) {
        const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
        if (id == kSignals) {
          signalfd_siginfo info{};
          if (read(signals_, &info, sizeof info) != sizeof info) continue;
          if (info.ssi_signo != SIGHUP) return;
          reload();
        } else if (id == kTimer) {
          std::uint64_t ticks = 0;
          (void)!read(timer_, &ticks, sizeof ticks);
          armed_ = 0;
        } else {
          receive(static_cast<std::size_t>(id));
        }
      }
    }
  }

 private:
  static constexpr std::uint64_t kSignals = ~0ULL, kTimer = ~0ULL - 1;

  void watch(int fd, std::uint64_t id) {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u64 = id;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) != 0) die("epoll_ctl");
  }

  void reload() {
    std::ifstream in(control_);
    std::string line, word, mac, generation = "0";
    std::uint32_t seed = 0;
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string name;
      if (!(fields >> name)) continue;
      if (name == "generation") {
        fields >> generation >> word >> seed;
        continue;
      }
      auto it =
          std::find_if(ports_.begin(), ports_.end(), [&](const Port& p) { return p.name == name; });
      if (it == ports_.end()) {
        if (ports_.empty()) random_.seed(seed);
        it = ports_.insert(ports_.end(), Port{});
        it->name = name;
        it->fd = open_port(name);
        watch(it->fd, ports_.size() - 1);
      }
      if (!(fields >> mac >> it->up >> it->rate >> it->delay >> it->loss_ppm))
        die("bad line: " + line);
      Mac m{};
      if (std::sscanf(mac.c_str(), "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &m[0], &m[1], &m[2], &m[3],
                      &m[4], &m[5]) != 6)
        die("bad address: " + mac);
      by_mac_[m] = static_cast<std::size_t>(it - ports_.begin());
    }
    std::ofstream out(status_ + ".new");
    out << "generation " << generation << '\n';
    for (const Port& p : ports_)
      out << p.name << ' ' << p.frames << ' ' << p.lost << ' ' << p.cut << ' ' << p.overflow
          << '\n';
    out.close();
    if (!out || std::rename((status_ + ".new").c_str(), status_.c_str()) != 0)
      die("cannot write " + status_);
  }

  void receive(std::size_t from) {
    for (int burst = 0; burst < 64; ++burst) {
      const ssize_t n = recv(ports_[from].fd, buffer_.data(), buffer_.size(), 0);
      if (n < static_cast<ssize_t>(kHeader + ETH_HLEN)) return;
      send_on(from, buffer_.data(), static_cast<std::size_t>(n));
    }
  }

  void send_on(std::size_t from, const unsigned char* frame, std::size_t size) {
    Port& p = ports_[from];
    ++p.frames;
    if (!p.up) return void(++p.cut);
    if (p.loss_ppm != 0 && random_() % 1'000'000 < p.loss_ppm) return void(++p.lost);
    const Nanos t = now();
    Nanos sent = t;
    if (p.rate != 0) {
      const Nanos start = std::max(t, p.out_free);
      if (start - t > kMaxQueueing) return void(++p.overflow);
      sent = p.out_free = start + serialization(size, p.rate);
    }
    Mac to{};
    std::memcpy(to.data(), frame + kHeader, to.size());
    if ((to[0] & 1) == 0) {
      if (const auto it = by_mac_.find(to); it != by_mac_.end())
        enqueue(from, it->second, sent + p.delay, frame, size);
      return;
    }
    for (std::size_t i = 0; i < ports_.size(); ++i)
      if (i != from) enqueue(from, i, sent + p.delay, frame, size);
  }

  void enqueue(std::size_t from, std::size_t to, Nanos due, const unsigned char* frame,
               std::size_t size) {
    Port& q = ports_[to];
    if (!q.up) return void(++ports_[from].cut);
    if (q.rate != 0) {  // cut-through: only contention delays, not a second serialization
      const Nanos start = std::max(due, q.in_free);
      if (start - due > kMaxQueueing) return void(++ports_[from].overflow);
      q.in_free = start + serialization(size, q.rate);
      due = start;
    }
    flights_.push(Flight{due, ++order_, to, Bytes(frame, frame + size)});
  }

  void deliver() {
    while (!flights_.empty()) {
      const Flight& f = flights_.top();
      if (f.due > now()) break;
      const Port& q = ports_[f.to];  // a frame in flight only arrives if the link is still up
      if (q.up) (void)!send(q.fd, f.frame.data(), f.frame.size(), MSG_DONTWAIT);
      flights_.pop();
    }
    const Nanos due = flights_.empty() ? 0 : flights_.top().due;
    if (due == armed_) return;
    armed_ = due;
    itimerspec when{};
    when.it_value.tv_sec = due / 1'000'000'000;
    when.it_value.tv_nsec = due % 1'000'000'000;
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  static Nanos serialization(std::size_t size, std::uint64_t rate) {
    return static_cast<Nanos>((size - kHeader) * 8 * 1'000'000'000 / rate);
  }

  std::string control_, status_;
  int signals_ = -1, timer_ = -1, epoll_ = -1;
  Nanos armed_ = 0;
  std::uint64_t order_ = 0;
  std::vector<Port> ports_;
  std::map<Mac, std::size_t> by_mac_;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flights_;
  std::mt19937 random_;
  Bytes buffer_ = Bytes(kMaxFrame);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: netns-wire CONTROL-FILE STATUS-FILE\n", stderr);
    return 2;
  }
  Wire(argv[1], argv[2]).run();
}
