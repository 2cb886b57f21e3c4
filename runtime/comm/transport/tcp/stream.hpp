// What travels on a TCP wire, after the greeting: writes into the receiver's mirror of the sender.
//
//     | offset 8 | size 4 | kind 4 | bytes' CRC32C 4 | header's CRC32C 4 | size bytes ... | offset
//
// A counter is a write of 8 bytes that becomes visible at once. Little endian, as both ends are:
// the greeting compares that.
//
// TCP has a checksum, but of 16 bits, and adapters compute it: it covers no byte that changes in
// the memory of an adapter or a host. One packet in 16 million to 10 billion arrived wrong, and was
// accepted (Stone and Partridge, "When The CRC and TCP Checksum Disagree", SIGCOMM 2000); and a
// wrong gradient looks like any other. So both ends compute a better one.
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
  // The only message of a rank that gives up before all are connected: because of rank `offset`,
  // so that the others name the same.
  farewell = 0x72736631
};

struct FrameHeader {
  std::uint64_t offset = 0;  // in the mirror, bytes
  std::uint32_t size = 0;    // bytes that follow
  FrameKind kind = FrameKind::bytes;
  std::uint32_t bytes_crc = 0;   // of the bytes that follow
  std::uint32_t header_crc = 0;  // of all before it

  void seal(std::span<const std::byte> bytes);
  // What header_crc should be.
  [[nodiscard]] std::uint32_t own_crc() const;
};
static_assert(sizeof(FrameHeader) == 24);

// The sending end of a TCP wire: a queue of frames that leaves as fast as the socket takes it.
//
// Large data is sent from where the user has it; only the kernel copies. Linux can leave that out,
// too (MSG_ZEROCOPY), but not towards a socket of the same host: every send of 1 MiB came back
// marked SO_EE_CODE_ZEROCOPY_COPIED, at 3.0 GB/s where plain ones made 4.0 (medians of 5
// alternating rounds of a small program, not kept, on a busy machine of two cores, 2026-11-22). No
// adapter on which it might pay has been measured, so it is not used.
class Sender {
 public:
  // checksum: the headers are sealed; else their checksums are 0.
  explicit Sender(bool checksum = true) : checksum_(checksum) {}

  // Small writes are copied now, larger ones referred to: see NetworkTransport::write(), and
  // NetworkTransport::lend() for those with a shelter.
  void write(std::size_t offset, const std::byte* from, std::size_t size,
             std::byte* shelter = nullptr);
  void counter(std::size_t offset, std::uint64_t value);
  // Takes what is lent and has not been sent to its shelter.
  void give_back();
  // Sends until the queue is empty or the socket is full. Empty, or why the socket has broken.
  [[nodiscard]] std::string flush(int socket);
  [[nodiscard]] bool empty() const { return frames_.empty(); }

 private:
  struct Frame {
    FrameHeader header;
    std::array<std::byte, NetworkTransport::kCopied> copy;  // directly behind the header
    const std::byte* data = nullptr;                        // null: the bytes are in `copy`
    std::byte* shelter = nullptr;                           // of bytes that are only lent
    [[nodiscard]] std::size_t bytes() const { return sizeof header + header.size; }
  };
  void drop(std::size_t sent);

  bool checksum_;
  std::deque<Frame> frames_;
  std::size_t sent_ = 0;  // bytes of the first frame
};

// The receiving end of a TCP wire: puts what comes into the mirror of the peer.
//
// One system call takes the rest of a large frame straight to its place in the mirror and what
// follows it into a small buffer, so that bytes of a message are copied by the kernel only.
//
// No byte that fails its checksum is used. A small frame is checked before it gets to its place, as
// the peer's report may be read at any time; a large one, piece by piece while it is in the cache,
// before the counter that publishes it is taken.
class Receiver {
 public:
  // checksum: the sender seals its headers, and what does not fit them is refused.
  Receiver(std::byte* mirror, std::size_t size, bool checksum = true)
      : mirror_(mirror), size_(size), checksum_(checksum) {}

  // Takes all that the socket has. Empty, or why nothing more will come: the peer has closed, an
  // error, or bytes that are no frame or fail their checksum.
  [[nodiscard]] std::string take(int socket);
  // Did bytes fail their checksum? Then the peer still hears what it is sent.
  [[nodiscard]] bool damaged() const { return !damage_.empty(); }

 private:
  static constexpr std::size_t kBuffer = 4096, kSmall = 2048;  // bytes
  static_assert(sizeof(FrameHeader) + kSmall <= kBuffer);
  static constexpr std::size_t kCounter = sizeof(std::uint64_t);

  [[nodiscard]] std::string consume();  // what is in the buffer
  void place(const std::byte* bytes);   // of a small frame, which has all come
  void arrived(std::size_t bytes);      // of a large one, and are in their place
  void compare(std::uint32_t sent, std::uint32_t found);

  std::byte* mirror_;
  std::size_t size_;
  bool checksum_;
  std::string damage_;
  FrameHeader header_;
  std::size_t missing_ = 0;  // bytes of the current frame that have not come
  std::byte* to_ = nullptr;  // where they go
  std::uint32_t crc_ = 0;    // of those that have come
  std::array<std::byte, kBuffer> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread bytes of the buffer
};

}  // namespace ringsmith::comm::tcp
