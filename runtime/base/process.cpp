#include "runtime/base/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string process_place() { return "pid " + std::to_string(getpid()) + " on " + host_name(); }

void open_standard_streams() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    const int null = open("/dev/null", O_RDWR);  // the lowest free number
    if (null > stream) close(null);              // another thread took the number
  }
}

namespace {
__attribute__((constructor(101))) void open_streams_first() { open_standard_streams(); }

void enlarge_thread_stacks() noexcept {
#ifdef __GLIBC__  // other C libraries do not derive the size from ulimit -s
  constexpr std::size_t kLeast = std::size_t{2} << 20;
  pthread_attr_t attributes;
  std::size_t size = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  if (pthread_attr_getstacksize(&attributes, &size) == 0 && size < kLeast &&
      pthread_attr_setstacksize(&attributes, kLeast) == 0)
    pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
#endif
}
}  // namespace

void repair_inheritance() noexcept {
  if (is_ignored(SIGCHLD)) std::signal(SIGCHLD, SIG_DFL);
  struct sigaction action {};
  if (sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = [](int) {};  // not SIG_IGN, which the programs that ringrun starts inherit
    action.sa_flags = SA_RESTART;
    sigaction(SIGXFSZ, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  enlarge_thread_stacks();
}

bool is_ignored(int signal) noexcept {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

std::uint64_t allow_open_files(std::uint64_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return files;
  if (limit.rlim_cur < files && limit.rlim_cur < limit.rlim_max) {
    rlimit more = limit;
    more.rlim_cur = std::min<rlim_t>(files, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  return limit.rlim_cur;
}

std::string reason_of(int error) {
  if (error == ENFILE) return "the machine has too many open files: raise sysctl fs.file-max";
  rlimit size{};
  if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != RLIM_INFINITY)
    return std::string(std::strerror(error)) + ": this process is limited to files of " +
           std::to_string(size.rlim_cur) +
           " bytes; raise the limit, for instance with 'ulimit -f unlimited'";
  if (error != EMFILE) return std::strerror(error);
  const std::uint64_t now = allow_open_files(0);
  return "too many open files: this process is limited to " + std::to_string(now) +
         "; raise the limit, for instance with 'ulimit -n " +
         std::to_string(std::max<std::uint64_t>(1024, 2 * now)) + "'";
}

bool is_lack(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == EFBIG;
}

void throw_errno(const std::string& what, int error, const std::string& remedy) {
  const std::string text = what + ": " + reason_of(error) + remedy;
  if (is_lack(error)) throw ResourceError(text);
  throw CommError(text);
}

namespace {

Bytes status_field(const std::string& key) {
  std::ifstream in("/proc/self/status");
  std::string word;
  std::size_t kib = 0;
  while (in >> word)
    if (word == key && in >> kib) return KiB(kib);  // proc(5): the unit is always kB, meaning KiB
  throw Error("cannot read " + key + " from /proc/self/status");
}

}  // namespace

Bytes peak_resident() { return status_field("VmHWM:"); }
Bytes resident() { return status_field("VmRSS:"); }
Bytes address_space() { return status_field("VmSize:"); }

std::optional<Bytes> address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return Bytes(limit.rlim_cur);
}

namespace {

// Has room for exactly one descriptor; with CMSG_SPACE, the padding would be room for a second.
struct Attachment {
  alignas(cmsghdr) char bytes[CMSG_LEN(sizeof(int))] = {};
};

msghdr message_of(iovec& data, Attachment& attachment, bool with) {
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (with) {
    message.msg_control = attachment.bytes;
    message.msg_controllen = sizeof attachment.bytes;
  }
  return message;
}

}  // namespace

ssize_t send_with_descriptor(int socket, const void* data, std::size_t size,
                             int descriptor) noexcept {
  iovec piece{const_cast<void*>(data), size};
  Attachment attachment;
  const msghdr message = message_of(piece, attachment, descriptor >= 0);
  if (descriptor >= 0) {
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_with_descriptor(int socket, void* data, std::size_t size,
                                Descriptor* descriptor) noexcept {
  iovec piece{data, size};
  Attachment attachment;
  msghdr message = message_of(piece, attachment, descriptor != nullptr);
  const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* const header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    *descriptor = Descriptor(fd);
  }
  if (n > 0 && descriptor != nullptr && (message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EMFILE;
    return -1;
  }
  return n;
}

}  // namespace ringsmith
