#include "tests/fault/attackers.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "kernels/vgpu/ipc_server.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/transport/shm/greeting.hpp"
#include "tests/support/neighbours.hpp"

namespace ringsmith::test {

namespace {

constexpr std::chrono::milliseconds kPoll{1};
constexpr int kBadExit = 9;

void send_with_descriptor(int socket, const void* bytes, std::size_t size) {
  static const Descriptor bait(memfd_create("bait", MFD_CLOEXEC));
  iovec data{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = bait.get();
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  (void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

using Speech = void (*)(int socket, int number, bool vgpu);
void say_nothing(int, int, bool) {}
void say_junk(int socket, int number, bool) {
  const std::string junk = number == 0   ? std::string(1, '\1')
                           : number == 1 ? std::string("\1\0\0\0", 4)
                           : number == 2 ? std::string(20, '\0')
                                         : std::string(5000, '\xff');
  (void)!send(socket, junk.data(), junk.size(), MSG_NOSIGNAL);
  if (number % 2 == 1) shutdown(socket, SHUT_WR);
}
void greet_as_before(int socket, int number, bool vgpu) {
  constexpr std::array<int, 4> kRanks{1, 2, 63, -3};
  // The emulator's request before the secret word was added: memory, device 0 or 1, offset 0.
  const std::array<std::int32_t, 4> request{0, number % 2, 0, 0};
  if (vgpu)
    (void)!send(socket, request.data(), sizeof request, MSG_NOSIGNAL);
  else
    send_with_descriptor(socket, &kRanks[static_cast<std::size_t>(number)], sizeof(int));
}
void greet(int socket, int number, bool vgpu) {
  using Request = vgpu::Request;
  const Request request{number % 2 == 0 ? Request::What::memory : Request::What::events, number / 2,
                        0, comm::random_word()};
  const Descriptor own(memfd_create("own", MFD_CLOEXEC));
  if (vgpu)
    send_with_descriptor(socket, &request, sizeof request);
  else
    (void)comm::send_greeting(socket, comm::random_word(), 1 + number % 2, own.get());
}

struct Plan {
  const char* name;
  Speech speech;
  int connections;  // per socket
};
Plan plan_of(Attack attack) {
  switch (attack) {
    case Attack::silence:
      return {"silence", say_nothing, 8};
    case Attack::junk:
      return {"junk", say_junk, 4};
    case Attack::old_greeting:
      return {"an old greeting", greet_as_before, 4};
    case Attack::greeting:
      return {"a greeting with a guessed word", greet, 4};
    default:
      return {"a flood", say_nothing, 6000};
  }
}

class Siege {
 public:
  Siege(Scene& scene, const Plan& plan) : scene_(scene), plan_(plan) {}

  // Attacks every socket not attacked before. Returns the number of ranks that have sockets.
  int attack_all(const char* prefix, const char* suffix, bool vgpu) {
    int ranks = 0;
    for (int r = 0; r < scene_.world.load(); ++r) {
      const std::string owner = prefix + std::to_string(scene_.pids[r].load()) + suffix;
      bool any = false;
      for (const std::string& name : testing::sockets_named(owner)) {
        any = true;
        if (attacked_[name]++ > 0) continue;
        for (int n = 0; n < plan_.connections && call(name, n, vgpu); ++n) continue;
      }
      ranks += any ? 1 : 0;
    }
    return ranks;
  }

  // Receives the answers. Reconnects closed connections, at most kMostCalls times.
  void hold_on() {
    std::vector<pollfd> entries;
    for (const Connection& c : connections_) entries.push_back({c.socket, POLLIN, 0});
    if (poll(entries.data(), entries.size(), 1) <= 0) return;
    for (std::size_t c = connections_.size(); c-- > 0;) {
      if (entries[c].revents == 0 || receive(entries[c].fd)) continue;
      const Connection gone = connections_[c];
      close(gone.socket);
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(c));
      if (again_++ < kMostCalls) call(gone.name, gone.number, gone.vgpu);
    }
  }

 private:
  struct Connection {
    int socket;
    std::string name;
    int number;
    bool vgpu;
  };
  static constexpr int kMostCalls = 20'000;

  bool call(const std::string& name, int number, bool vgpu) {
    const int s = testing::abstract_socket(name, connect);
    if (s < 0) return false;
    plan_.speech(s, number, vgpu);
    connections_.push_back({s, name, number, vgpu});
    ++scene_.connections;
    return true;
  }
  bool receive(int socket) {  // false if the connection was closed
    char bytes[256];
    iovec data{bytes, sizeof bytes};
    alignas(cmsghdr) char control[256];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT);
    if (n > 0 && CMSG_FIRSTHDR(&message) != nullptr) ++scene_.loot;
    return n > 0 || (n < 0 && errno == EAGAIN);
  }

  Scene& scene_;
  Plan plan_;
  std::vector<Connection> connections_;
  std::map<std::string, int> attacked_;
  int again_ = 0;
};

int besiege(Scene& scene, Attack attack) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (!Scene::wait_for(scene.present, scene.world)) return kBadExit;
  Siege siege(scene, plan_of(attack));
  bool at_meeting = false, at_memory = false;
  while (!scene.over.load()) {
    if (!at_meeting && siege.attack_all("ringsmith-", "-", false) == scene.world) {
      at_meeting = true;
      ++scene.attacked_meeting;
    }
    if (!at_memory && siege.attack_all("vgpu.", ".", true) == scene.world) {
      at_memory = true;
      ++scene.attacked_memory;
    }
    siege.hold_on();
  }
  return at_meeting ? 0 : kBadExit;
}

}  // namespace

const char* name_of(Attack attack) { return plan_of(attack).name; }

Scene* Scene::make() {
  void* const memory =
      mmap(nullptr, sizeof(Scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Scene{};
}

bool Scene::wait_for(const std::atomic<int>& counter, int value) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (counter.load() < value) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

Attacker::Attacker(Scene& scene, Attack attack, bool as_nobody) : pid_(fork()) {
  if (pid_ != 0) return;
  if (as_nobody && !testing::become_nobody()) _exit(kBadExit);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(besiege(scene, attack));
}

Attacker::~Attacker() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Attacker::ended_well() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace ringsmith::test
