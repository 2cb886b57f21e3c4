#include "runtime/base/descriptor.hpp"

#include <cstring>
#include <sys/socket.h>

namespace ringsmith {

namespace {

// Room for one descriptor, not two: what CMSG_SPACE adds for alignment would hold a second.
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
  return n;
}

}  // namespace ringsmith
