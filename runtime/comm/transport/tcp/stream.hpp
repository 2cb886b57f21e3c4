// After the greeting, a TCP connection carries writes to the receiver's mirror of the sender:
//
//     | offset 8 | size 4 | kind 4 | bytes' CRC32C 4 | header's CRC32C 4 | size bytes ... | offset
//
// A counter is a write of 8 bytes that becomes visible as a whole. All fields are little endian;
// the greeting checks both ends' byte order.
//
// TCP's checksum has only 16 bits, and adapters compute it, so it does not cover bytes that change
// in the memory of an adapter or a host. One packet in 16 million to 10 billion arrived wrong and
// was accepted (Stone and Partridge, "When The CRC and TCP Checksum Disagree", SIGCOMM 2000), and a
// wrong gradient looks like any other. Therefore both ends compute a stronger checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "runtime/comm/transport/network_transport.hpp"

namespace ringsmith::comm::tcp {

enum class FrameKind : std::uint32_t {
  bytes = 0x72736231,
  counter = 0x72736331,
  // The only frame of a rank that gives up before all are connected. It blames rank `offset`, so
  // that the other ranks name the same rank.
  farewell = 0x72736631
};

struct FrameHeader {
  std::uint64_t offset = 0;  // in the mirror, bytes
  std::uint32_t size = 0;    // bytes that follow
  FrameKind kind = FrameKind::bytes;
  std::uint32_t bytes_crc = 0;   // of the bytes that follow
  std::uint32_t header_crc = 0;  // of the fields before it

  void seal(std::span<const std::byte> bytes);
  // Returns the value that header_crc should have.
  [[nodiscard]] std::uint32_t own_crc() const;
};
static_assert(sizeof(FrameHeader) == 24);

// The sending end of a TCP connection: a queue of frames, sent as fast as the socket accepts them.
//
// Large data is sent from the user's buffer. Only the kernel copies it, unless it is lent and the
// socket accepts only a part of it. Linux can avoid even this copy (MSG_ZEROCOPY), but not
// to a socket of the same host: every send of 1 MiB was reported as SO_EE_CODE_ZEROCOPY_COPIED, at
// 3.0 GB/s where plain sends reached 4.0 (medians of 5 alternating rounds on two busy cores,
// 2026-11-22). MSG_ZEROCOPY has not been measured on an adapter, so it is not used.
class Sender {
 public:
  // checksum: false leaves the checksums in the headers at 0.
  explicit Sender(bool checksum = true) : checksum_(checksum) {}

  // Copies small writes and keeps a pointer to larger ones: see NetworkTransport::write(), and
  // NetworkTransport::lend() for writes with a shelter.
  void write(std::size_t offset, const std::byte* from, std::size_t size,
             std::byte* shelter = nullptr);
  void counter(std::size_t offset, std::uint64_t value);
  // Copies the lent bytes that are still unsent to their shelters.
  void give_back();
  // Sends until the queue is empty or the socket is full. Returns "", or why the connection broke.
  [[nodiscard]] std::string flush(int socket);
  [[nodiscard]] bool empty() const { return frames_.empty(); }

 private:
  struct Frame {
    FrameHeader header;
    std::array<std::byte, NetworkTransport::kCopied> copy;  // contiguous with the header
    const std::byte* data = nullptr;                        // null: the bytes are in `copy`
    std::byte* shelter = nullptr;                           // set if the bytes are only lent
    [[nodiscard]] std::size_t bytes() const { return sizeof header + header.size; }
  };
  void drop(std::size_t sent);

  bool checksum_;
  std::deque<Frame> frames_;
  std::size_t sent_ = 0;  // sent bytes of the first frame
};

// The receiving end of a TCP connection: writes the received bytes to the mirror of the peer.
//
// One system call reads the rest of a large frame directly into its place in the mirror, and the
// bytes after it into a small buffer, so only a large message's first bytes are copied twice.
//
// No byte that fails its checksum is used. A small frame is checked before it is copied to its
// place, because the peer's report may be read at any time. A large frame is checked piece by piece
// while it is in the cache, and in full before the counter that publishes it is stored.
class Receiver {
 public:
  // checksum: bytes that do not match the checksums in their header are refused.
  Receiver(std::byte* mirror, std::size_t size, bool checksum = true)
      : mirror_(mirror), size_(size), checksum_(checksum) {}

  // Reads all that the socket has. Returns "", or the reason why nothing more will arrive: the peer
  // has closed the connection, an error, or bytes that are not a frame or fail their checksum.
  [[nodiscard]] std::string take(int socket);
  // True if bytes failed their checksum.
  [[nodiscard]] bool damaged() const { return !damage_.empty(); }

 private:
  static constexpr std::size_t kBuffer = 4096, kSmall = 2048;  // bytes
  static_assert(sizeof(FrameHeader) + kSmall <= kBuffer);
  static constexpr std::size_t kCounter = sizeof(std::uint64_t);

  [[nodiscard]] std::string consume();  // parses the frames in the buffer
  void place(const std::byte* bytes);   // stores a small frame that has arrived in full
  void arrived(std::size_t bytes);      // checks bytes of a large frame, already in place
  void compare(std::uint32_t sent, std::uint32_t found);

  std::byte* mirror_;
  std::size_t size_;
  bool checksum_;
  std::string damage_;
  FrameHeader header_;
  std::size_t missing_ = 0;  // bytes of the current frame that have not arrived
  std::byte* to_ = nullptr;  // destination of the missing bytes
  std::uint32_t crc_ = 0;    // of the bytes that have arrived
  std::array<std::byte, kBuffer> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread bytes of the buffer
};

}  // namespace ringsmith::comm::tcp
