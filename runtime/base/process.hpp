// This process and its environment: names for messages, memory, open files.
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

// Repairs settings that a program may inherit from its parent but cannot work with. run_main()
// calls it first.
//
//   SIGCHLD ignored     reset to default: otherwise the exit status of children would be lost
//   signals blocked     unblocked: a signal that ends the program would stay pending forever
//   ulimit -f           SIGXFSZ is caught: a write beyond the limit fails with EFBIG instead
//   ulimit -s           threads started later have a stack of 2 MiB or more: glibc gives them the
//                       limit's size, and a smaller one overflows without a message
//
// Other ignored signals stay ignored, as nohup and a shell's & without job control expect.
void repair_inheritance() noexcept;
// Opens /dev/null on each of the descriptors 0 to 2 that is closed: otherwise the next file or
// socket would get that number and receive the program's output. A constructor in process.cpp calls
// this function before main() and before other constructors that open files.
void open_standard_streams() noexcept;

// True if the signal is ignored; in that case, do not install a handler for it.
[[nodiscard]] bool is_ignored(int signal) noexcept;

// Raises the limit on open files to `files`, or as far as the hard limit allows; never lowers it.
// Returns the resulting limit.
std::uint64_t allow_open_files(std::uint64_t files);

// Returns strerror(error) or, if too many files are open or a file would be too large, the limit
// that was reached and how to raise it.
[[nodiscard]] std::string reason_of(int error);
// True if the error means that this process or the machine reached a limit: files, sizes, memory.
[[nodiscard]] bool is_lack(int error) noexcept;
// Throws "what: reason" and the remedy, as a ResourceError if is_lack(error), else as a CommError.
[[noreturn]] void throw_errno(const std::string& what, int error, const std::string& remedy = {});

// Maximum resident memory so far (VmHWM). Throws Error if /proc cannot be read.
[[nodiscard]] Bytes peak_resident();
// Resident memory now (VmRSS).
[[nodiscard]] Bytes resident();
// Address space in use, whether backed by memory or not (VmSize), and its limit (RLIMIT_AS, ulimit
// -v), if any.
[[nodiscard]] Bytes address_space();
[[nodiscard]] std::optional<Bytes> address_space_limit();

// Owns and closes a file descriptor.
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

// Sends one message over a Unix socket, with a descriptor (SCM_RIGHTS) unless it is -1. Never
// blocks. Returns what sendmsg() returns.
ssize_t send_with_descriptor(int socket, const void* data, std::size_t size,
                             int descriptor) noexcept;
// Receives a message without blocking. Returns what recvmsg() returns. Stores a received descriptor
// in `descriptor`. If `descriptor` is null, the kernel drops received descriptors. Fails with
// EMFILE if a descriptor arrived but this process has too many files open.
ssize_t receive_with_descriptor(int socket, void* data, std::size_t size,
                                Descriptor* descriptor) noexcept;

}  // namespace ringsmith
