// This process and what the system gives it: names for messages, memory, open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include "runtime/base/units.hpp"

namespace ringsmith {

[[nodiscard]] std::string host_name();
[[nodiscard]] std::string process_place();  // "pid 4711 on host-a"

// Repairs settings that a program may inherit from its parent and cannot work with. run_main()
// calls this first.
//
//   SIGCHLD ignored     default: nobody would learn how children end
//   signals blocked     none: one that ends the program would wait forever
//
// Any other signal that is ignored stays ignored: nohup, and a shell's & without job control.
void repair_inheritance() noexcept;
// Closed descriptors 0 to 2 become /dev/null: else the first file or socket gets the number, and is
// printed into. Every program that is linked with this does it before main() and before
// constructors that open files.
void open_standard_streams() noexcept;

// Is the signal ignored? Install no handler for an ignored signal.
[[nodiscard]] bool is_ignored(int signal) noexcept;

// Raises the limit on open files to `files`, or as far as the hard limit allows, if it is lower;
// never lowers it. What it is then.
std::uint64_t allow_open_files(std::uint64_t files);

// What the kernel says about the error number. For too many open files: how many are allowed, and
// the remedy.
[[nodiscard]] std::string reason_of(int error);
// May this process, or the machine, not have more of something: files, memory, buffers?
[[nodiscard]] bool is_lack(int error) noexcept;
// Throws "what: reason" and the remedy: ResourceError for a lack, else CommError.
[[noreturn]] void throw_errno(const std::string& what, int error, const std::string& remedy = {});

// The most physical memory that was ever resident (VmHWM). Error if /proc cannot be read.
[[nodiscard]] Bytes peak_resident();
// What is resident now (VmRSS).
[[nodiscard]] Bytes resident();
// Addresses that are in use, whether memory is behind them or not (VmSize), and how many there may
// be (RLIMIT_AS, ulimit -v); nothing: as many as there are.
[[nodiscard]] Bytes address_space();
[[nodiscard]] std::optional<Bytes> address_space_limit();

// A file descriptor that closes itself, and messages between processes that carry one.
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
// that is null, the kernel drops it. EMFILE: one came, and this process may not have another.
ssize_t receive_with_descriptor(int socket, void* data, std::size_t size,
                                Descriptor* descriptor) noexcept;

}  // namespace ringsmith
