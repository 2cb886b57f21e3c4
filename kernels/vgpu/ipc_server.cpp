#include "kernels/vgpu/ipc_server.hpp"

#include <cstdio>
#include <cstring>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/shared_event.hpp"

namespace vgpu {

namespace {

constexpr timeval kPatience{10, 0};  // for an answer: the exporter may be short of processor time

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

// One byte, with a descriptor or without.
void send_descriptor(int socket, int descriptor) {
  char byte = descriptor >= 0 ? 1 : 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  (void)!::sendmsg(socket, &message, MSG_NOSIGNAL);
}

// False if the other side said nothing; descriptor -1 if it said no.
bool receive_descriptor(int socket, int& descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return false;
  descriptor = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr)
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return true;
}

int file_for(const Request& request) {
  if (request.what == Request::What::events) return SharedEvents::get().file();
  if (request.device < 0 || request.device >= Device::count()) return -1;
  const Arena& memory = Device::get(request.device).memory();
  return memory.block_lives(request.offset) ? memory.file() : -1;
}

[[noreturn]] void serve(int listener) {
  const Quiet quiet;
  for (;;) {
    const int peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) continue;
    ::setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    Request request;
    if (::recv(peer, &request, sizeof request, MSG_WAITALL) == sizeof request)
      send_descriptor(peer, file_for(request));
    ::close(peer);
  }
}

Exporter start() {
  Exporter self{::getpid(), 0};
  if (::getrandom(&self.nonce, sizeof self.nonce, 0) != sizeof self.nonce)
    fatal("the system gives no random numbers");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Address address(self);
  if (listener < 0 || ::bind(listener, address.get(), address.bytes) != 0 ||
      ::listen(listener, 128) != 0)
    fatal("cannot listen on an abstract Unix socket for IPC handles");
  std::thread(serve, listener).detach();
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

int ask(const Exporter& exporter, const Request& request, std::string& reason) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  const Address address(exporter);
  int descriptor = -1;
  if (::connect(socket, address.get(), address.bytes) != 0 ||
      ::send(socket, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
      !receive_descriptor(socket, descriptor))
    reason = "process " + std::to_string(exporter.process) +
             ", which exported the handle, has ended or does not answer";
  else if (descriptor < 0)
    reason = "process " + std::to_string(exporter.process) + " has freed what the handle names";
  ::close(socket);
  return descriptor;
}

}  // namespace vgpu
