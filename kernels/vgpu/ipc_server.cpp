#include "kernels/vgpu/ipc_server.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/event.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

namespace {

constexpr std::chrono::seconds kPatience{10};  // the exporter may be short of processor time
constexpr std::size_t kMostGuests = 64;        // connections without a request yet

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;
  explicit Address(const Exporter& e) {
    un.sun_family = AF_UNIX;  // sun_path[0] is 0: an abstract name, gone with its socket
    const int n =
        std::snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "vgpu.%d.%08x", e.process, e.nonce);
    bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
};

bool of_our_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

// A message of one byte, with room for one descriptor (CMSG_SPACE would have room for two).
struct OneByte {
  char byte = 0;
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))]{};
  iovec data{&byte, 1};
  msghdr message{};
  OneByte() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
  }
  OneByte(const OneByte&) = delete;
  OneByte& operator=(const OneByte&) = delete;
  void attach() {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
};

void send_descriptor(int socket, int descriptor) {
  OneByte out;
  if (descriptor >= 0) {
    out.byte = 1;
    out.attach();
    cmsghdr* header = CMSG_FIRSTHDR(&out.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  (void)!::sendmsg(socket, &out.message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The descriptor is -1 if the other side refused.
enum class Answer { came, closed, late };
Answer receive_descriptor(int socket, int& descriptor) {
  OneByte in;
  in.attach();
  const ssize_t n = ::recvmsg(socket, &in.message, MSG_CMSG_CLOEXEC);
  descriptor = -1;
  if (n != 1) return n < 0 && errno == EAGAIN ? Answer::late : Answer::closed;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&in.message);
      header != nullptr && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return Answer::came;
}

int file_for(const Request& request) {
  if (request.what == Request::What::events) return SharedEvents::get().file();
  if (request.device < 0 || request.device >= Device::count()) return -1;
  const Arena& memory = Device::get(request.device).memory();
  return memory.block_lives(request.offset) ? memory.file() : -1;
}

class Guests {
 public:
  explicit Guests(int listener) : entries_{{listener, POLLIN, 0}} {}
  void serve_some(const Exporter::Word& word) {
    if (::poll(entries_.data(), entries_.size(), -1) <= 0) return;
    for (std::size_t g = entries_.size(); --g > 0;)
      if (entries_[g].revents != 0) {
        answer(entries_[g].fd, word);
        drop(g);
      }
    if (entries_[0].revents != 0) let_in();
  }

 private:
  // ask() sends a request in one piece. Any other data gets no answer.
  static void answer(int guest, const Exporter::Word& word) {
    Request request;
    if (::recv(guest, &request, sizeof request, MSG_DONTWAIT) == sizeof request)
      send_descriptor(guest, request.word == word ? file_for(request) : -1);
  }
  void let_in() {
    const int guest = ::accept4(entries_[0].fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (entries_.size() > kMostGuests || (guest < 0 && entries_.size() > 1))
      drop(1);  // the client connects again
    if (guest < 0) return;
    if (of_our_user(guest))
      entries_.push_back({guest, POLLIN, 0});
    else
      ::close(guest);
  }
  void drop(std::size_t g) {
    ::close(entries_[g].fd);
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(g));
  }

  std::vector<pollfd> entries_;  // the listener, then the connections, longest waiting first
};

[[noreturn]] void serve(int listener, const Exporter::Word& word) {
  const Quiet quiet;
  for (Guests guests(listener);;) guests.serve_some(word);
}

template <class T>
void fill_randomly(T& value) {
  if (::getrandom(&value, sizeof value, 0) != sizeof value)
    fatal("cannot get random numbers from the system");
}

Exporter start() {
  Exporter self{::getpid(), 0, {}};
  fill_randomly(self.nonce);
  fill_randomly(self.word);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Address address(self);
  if (listener < 0 || ::bind(listener, address.get(), address.bytes) != 0 ||
      ::listen(listener, SOMAXCONN) != 0)
    fatal("cannot listen on an abstract Unix socket for IPC handles");
  std::thread(serve, listener, self.word).detach();
  return self;
}

const Exporter& self() {
  static const Exporter exporter = start();
  return exporter;
}

}  // namespace

Exporter export_from_here() { return self(); }
bool is_here(const Exporter& exporter) {
  return exporter.process == ::getpid() && exporter == self();
}

int ask(const Exporter& exporter, Request request, std::string& reason) {
  using Clock = std::chrono::steady_clock;
  request.word = exporter.word;
  const Address address(exporter);
  const auto deadline = Clock::now() + kPatience;
  int descriptor = -1;
  // If the exporter closes a connection without an answer, it had too many connections or has
  // ended. If it has ended, the next connect() fails.
  Answer answer = Answer::closed;
  while (answer == Answer::closed) {
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{left / 1'000'000, left % 1'000'000};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);  // connect() too
    const bool connected = ::connect(socket, address.get(), address.bytes) == 0;
    if (!connected || !of_our_user(socket))
      answer = Answer::late;
    else if (::send(socket, &request, sizeof request, MSG_NOSIGNAL) == sizeof request)
      answer = receive_descriptor(socket, descriptor);
    ::close(socket);
    if (answer == Answer::closed) ::poll(nullptr, 0, 1);  // ms, in which the exporter serves others
  }
  if (answer != Answer::came)
    reason = "process " + std::to_string(exporter.process) +
             ", which exported the handle, has ended or does not answer";
  else if (descriptor < 0)
    reason = "process " + std::to_string(exporter.process) +
             " has freed the memory or event, or never exported this handle";
  return descriptor;
}

}  // namespace vgpu
