// The code of one rank in a separate process, which the driver forks.
//
//     driver   Separate ---- a socket: messages of any length ---- Line   child: the student's code
//
// Threads of one process share memory, so a rank could read another rank's data by a pointer,
// without a message that the kit counts. A process has only what was sent to it, and what the
// driver's memory contained when it was forked.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "labs/kit/driver.hpp"

namespace kit {

// The child's end.
class Line {
 public:
  void write(std::span<const std::byte> message);
  // The same, but the message leaves together with the next one that is written.
  void hold(std::span<const std::byte> message);
  // Returns nothing if the driver has closed its end.
  std::optional<std::vector<std::byte>> read();

 private:
  friend class Separate;
  explicit Line(int socket) : socket_(socket) {}
  int socket_;
  std::vector<std::byte> held_;
};

// The driver's end.
class Separate {
 public:
  // Forks a process that runs work and exits when work returns. Fork before you start threads.
  Separate(std::string name, const std::function<void(Line&)>& work);
  ~Separate();  // kills the process
  Separate(const Separate&) = delete;
  Separate& operator=(const Separate&) = delete;

  void write(std::span<const std::byte> message);
  // Waits for the child's next message. If the child has ended instead, throws the exception that
  // work has thrown (NotAttempted; Misuse and std::runtime_error with the name before the message)
  // or std::runtime_error, which says how the process ended.
  std::vector<std::byte> read();

 private:
  [[noreturn]] void fail();

  std::string name_;
  int process_ = -1;
  int socket_ = -1;
};

}  // namespace kit
