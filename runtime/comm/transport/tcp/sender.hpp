// The sending end of a TCP wire: a queue of frames that leaves as fast as the socket takes it.
//
// Large data is sent from where the user has it; only the kernel copies. Linux can leave that out,
// too (MSG_ZEROCOPY), but not towards a socket of the same host: every send of 1 MiB came back
// marked SO_EE_CODE_ZEROCOPY_COPIED, at 3.0 GB/s where plain ones made 4.0 (medians of 5
// alternating rounds of a small program, not kept, on a busy machine of two cores, 2026-11-22). No
// adapter on which it might pay has been measured, so it is not used.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>

#include "runtime/comm/transport/tcp/frame.hpp"
#include "runtime/comm/transport/network_transport.hpp"

namespace ringsmith::comm::tcp {

class Sender {
 public:
  // Small writes are copied now, larger ones referred to: see NetworkTransport::write(), and NetworkTransport::lend() for
  // those with a shelter.
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
    const std::byte* data = nullptr;             // null: the bytes are in `copy`
    std::byte* shelter = nullptr;                // of bytes that are only lent
    [[nodiscard]] std::size_t bytes() const { return sizeof header + header.size; }
  };
  void drop(std::size_t sent);

  std::deque<Frame> frames_;
  std::size_t sent_ = 0;  // bytes of the first frame
};

}  // namespace ringsmith::comm::tcp
