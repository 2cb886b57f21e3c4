// A file descriptor that closes itself, and messages between processes that carry one.
#pragma once

#include <cstddef>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

namespace ringsmith {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// One message over a Unix socket, with a descriptor (SCM_RIGHTS) unless it is -1. Does not wait; as
// from sendmsg().
ssize_t send_with_descriptor(int socket, const void* data, std::size_t size,
                             int descriptor) noexcept;
// As from recvmsg(), also without waiting. A descriptor that comes is put into `descriptor`; where
// that is null, the kernel drops it.
ssize_t receive_with_descriptor(int socket, void* data, std::size_t size,
                                Descriptor* descriptor) noexcept;

}  // namespace ringsmith
