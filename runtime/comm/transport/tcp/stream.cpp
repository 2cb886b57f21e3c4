#include "runtime/comm/transport/tcp/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <new>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/process.hpp"
#include "runtime/comm/transport/tcp/crc32c.hpp"

namespace ringsmith::comm::tcp {

void FrameHeader::seal(std::span<const std::byte> bytes) {
  bytes_crc = crc32c(bytes);
  header_crc = own_crc();
}

std::uint32_t FrameHeader::own_crc() const {
  return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(FrameHeader, header_crc)));
}

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
    // Computes the checksum now, while the bytes are in the cache.
    if (checksum_) frame.header.seal({frame.data == nullptr ? frame.copy.data() : from, part});
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
  if (checksum_) frame.header.seal(std::as_bytes(std::span(&value, 1)));
}

void Sender::give_back() {
  std::size_t sent = sent_;  // bytes of the first frame
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
    // A shortage of buffers is temporary and not the peer's fault.
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
  while (!damaged()) {
    // The buffer holds the beginning of a header or of a small frame. It is empty while a large
    // frame is incomplete.
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
    arrived(direct);
    end_ += n - direct;
    if (std::string trouble = consume(); !trouble.empty()) return trouble;
    if (n < asked) break;  // the socket is empty, so another call would return nothing
  }
  return damage_;
}

std::string Receiver::consume() {
  while (!damaged() && end_ - begin_ >= sizeof header_) {
    std::memcpy(&header_, buffer_.data() + begin_, sizeof header_);
    if (checksum_) compare(header_.header_crc, header_.own_crc());
    if (damaged()) break;
    if (header_.kind == FrameKind::farewell)
      return "it had lost rank " + std::to_string(header_.offset) + " before all were connected";
    const bool counter = header_.kind == FrameKind::counter;
    if ((!counter && header_.kind != FrameKind::bytes) || header_.offset > size_ ||
        header_.size > size_ - header_.offset ||
        (counter && (header_.size != kCounter || header_.offset % kCounter != 0)))
      return "it sent bytes that are not a ringsmith message";
    const std::byte* const bytes = buffer_.data() + begin_ + sizeof header_;
    const std::size_t here = std::min<std::size_t>(header_.size, end_ - begin_ - sizeof header_);
    if (header_.size <= kSmall) {
      if (here < header_.size) break;
      place(bytes);
    } else {
      to_ = mirror_ + header_.offset;
      missing_ = header_.size;
      crc_ = 0;
      std::memcpy(to_, bytes, here);
      arrived(here);
    }
    begin_ += sizeof header_ + here;
  }
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  return damage_;
}

void Receiver::place(const std::byte* bytes) {
  if (checksum_) compare(header_.bytes_crc, crc32c({bytes, header_.size}));
  if (damaged()) return;
  std::byte* const to = mirror_ + header_.offset;
  if (header_.kind == FrameKind::bytes) {
    std::memcpy(to, bytes, header_.size);
    return;
  }
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(to))
      ->store(value, std::memory_order_release);
}

void Receiver::arrived(std::size_t bytes) {
  if (bytes == 0) return;
  if (checksum_) crc_ = crc32c({to_, bytes}, crc_);
  to_ += bytes;
  missing_ -= bytes;
  if (checksum_ && missing_ == 0) compare(header_.bytes_crc, crc_);
}

void Receiver::compare(std::uint32_t sent, std::uint32_t found) {
  if (sent != found)
    damage_ = fmt::format("do not match their checksum (CRC32C {:#010x} instead of {:#010x})",
                          found, sent);
}

}  // namespace ringsmith::comm::tcp
