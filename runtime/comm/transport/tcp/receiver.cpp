#include "runtime/comm/transport/tcp/receiver.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>

namespace ringsmith::comm::tcp {

std::string Receiver::take(int socket) {
  for (;;) {
    // The buffer is empty but for a header that is not complete; what is missing of a frame comes
    // first.
    std::array<iovec, 2> pieces;
    std::size_t used = 0, asked = 0;
    const auto add = [&](void* data, std::size_t size) {
      pieces[used++] = {data, size};
      asked += size;
    };
    const std::size_t first = missing_;
    if (first > 0) add(to_, first);
    add(buffer_.data() + end_, buffer_.size() - end_);
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = used;
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (got < 0) return std::strerror(errno);
    if (got == 0) return "the connection was closed";
    const auto n = static_cast<std::size_t>(got);
    const std::size_t direct = std::min(n, first);
    missing_ -= direct;
    to_ += direct;
    end_ += n - direct;
    if (first > 0 && missing_ == 0) finish_counter();
    if (std::string trouble = consume(); !trouble.empty()) return trouble;
    if (n < asked) return {};  // the socket is empty: no need to ask again
  }
}

std::string Receiver::consume() {
  while (end_ - begin_ >= sizeof header_) {
    std::memcpy(&header_, buffer_.data() + begin_, sizeof header_);
    begin_ += sizeof header_;
    if (header_.kind == FrameKind::farewell)
      return "it had lost rank " + std::to_string(header_.offset) + " before all were connected";
    const bool counter = header_.kind == FrameKind::counter;
    if ((!counter && header_.kind != FrameKind::bytes) || header_.offset > size_ ||
        header_.size > size_ - header_.offset ||
        (counter && (header_.size != sizeof counter_ || header_.offset % sizeof counter_ != 0)))
      return "it sent bytes that are no message of ringsmith";
    to_ = counter ? reinterpret_cast<std::byte*>(&counter_) : mirror_ + header_.offset;
    missing_ = header_.size;
    const std::size_t here = std::min(missing_, end_ - begin_);
    std::memcpy(to_, buffer_.data() + begin_, here);
    begin_ += here;
    to_ += here;
    missing_ -= here;
    if (missing_ > 0) break;
    finish_counter();
  }
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  return {};
}

void Receiver::finish_counter() {
  if (header_.kind != FrameKind::counter) return;
  std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(mirror_ + header_.offset))
      ->store(counter_, std::memory_order_release);
}

}  // namespace ringsmith::comm::tcp
