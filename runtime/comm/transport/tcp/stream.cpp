#include "runtime/comm/transport/tcp/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/process.hpp"

namespace ringsmith::comm::tcp {

void Sender::write(std::size_t offset, const std::byte* from, std::size_t size,
                   std::byte* shelter) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max() & ~std::size_t{7};
  do {
    const std::size_t part = std::min(size, kMost);
    Frame& frame = frames_.emplace_back();
    frame.header = {offset, static_cast<std::uint32_t>(part), FrameKind::bytes};
    if (part <= frame.copy.size()) {
      std::memcpy(frame.copy.data(), from, part);
    } else {
      frame.data = from;
      frame.shelter = shelter;
    }
    if (shelter != nullptr) shelter += part;
    offset += part;
    from += part;
    size -= part;
  } while (size > 0);
}

void Sender::counter(std::size_t offset, std::uint64_t value) {
  Frame& frame = frames_.emplace_back();
  frame.header = {offset, sizeof value, FrameKind::counter};
  std::memcpy(frame.copy.data(), &value, sizeof value);
}

void Sender::give_back() {
  std::size_t sent = sent_;  // of the first frame
  for (Frame& frame : frames_) {
    if (frame.shelter != nullptr) {
      const std::size_t gone = sent > sizeof frame.header ? sent - sizeof frame.header : 0;
      std::memcpy(frame.shelter + gone, frame.data + gone, frame.header.size - gone);
      frame.data = frame.shelter;
      frame.shelter = nullptr;
    }
    sent = 0;
  }
}

std::string Sender::flush(int socket) {
  constexpr std::size_t kPieces = 32;
  while (!frames_.empty()) {
    std::array<iovec, kPieces> pieces;
    std::size_t used = 0, skip = sent_, asked = 0;
    const auto add = [&](const void* data, std::size_t size) {
      const std::size_t skipped = std::min(skip, size);
      skip -= skipped;
      asked += size - skipped;
      if (size > skipped)
        pieces[used++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped,
                          size - skipped};
    };
    for (auto frame = frames_.begin(); frame != frames_.end() && used + 2 <= kPieces; ++frame) {
      if (frame->data == nullptr) {
        add(&frame->header, frame->bytes());
      } else {
        add(&frame->header, sizeof frame->header);
        add(frame->data, frame->header.size);
      }
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = used;
    const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    // A lack of buffers passes; the peer is not to blame for it.
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || is_lack(errno))) return {};
    if (sent < 0) return std::strerror(errno);
    drop(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < asked) return {};
  }
  return {};
}

void Sender::drop(std::size_t sent) {
  sent_ += sent;
  while (!frames_.empty() && sent_ >= frames_.front().bytes()) {
    sent_ -= frames_.front().bytes();
    frames_.pop_front();
  }
}

std::string Receiver::take(int socket) {
  for (;;) {
    // The buffer holds no more than a part of a header; what is missing of a frame comes first.
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
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || is_lack(errno))) return {};
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
      return "it sent bytes that are not a ringsmith message";
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
