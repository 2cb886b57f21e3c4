// The receiving end of a TCP wire: puts what comes into the mirror of the peer.
//
// One system call takes the rest of a large frame straight to its place in the mirror and what
// follows it into a small buffer, so that bytes of a message are copied by the kernel only.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "runtime/comm/transport/tcp/frame.hpp"

namespace ringsmith::comm::tcp {

class Receiver {
 public:
  Receiver(std::byte* mirror, std::size_t size) : mirror_(mirror), size_(size) {}

  // Takes all that the socket has. Empty, or why nothing more will come: the peer has closed, an
  // error, or bytes that are no frame.
  [[nodiscard]] std::string take(int socket);

 private:
  [[nodiscard]] std::string consume();  // what is in the buffer
  void finish_counter();

  std::byte* mirror_;
  std::size_t size_;
  FrameHeader header_;
  std::size_t missing_ = 0;    // bytes of the current frame that have not come
  std::byte* to_ = nullptr;    // where they go
  std::uint64_t counter_ = 0;  // a counter on its way
  std::array<std::byte, 4096> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread bytes of the buffer
};

}  // namespace ringsmith::comm::tcp
