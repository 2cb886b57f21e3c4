// A thread of each exporting process hands out the file behind the process's device memory or
// events, over an abstract Unix socket. The file descriptor arrives with the answer.
//
//   importer: connect("\0vgpu.PID.NONCE"), Request -------> exporter's thread: alive? which file?
//             mmap(descriptor)             <------- Answer + descriptor (SCM_RIGHTS)
//
// Neither the socket nor the files have a name in the file system, so kill -9 leaves nothing
// behind.
//
// However, every process of the machine sees the socket's name and may connect. Therefore both
// sides ask the kernel for the other side's user, and a request carries a random word that only the
// handle contains. A silent client does not delay others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace vgpu {

// Identifies a process that exports. The nonce distinguishes processes with the same pid, and is
// public, because it is part of the socket's name. The word is secret.
struct Exporter {
  using Word = std::array<std::uint64_t, 2>;
  std::int32_t process = 0;
  std::uint32_t nonce = 0;
  Word word{};
  bool operator==(const Exporter&) const = default;
  auto operator<=>(const Exporter&) const = default;
};

struct Request {
  enum class What : std::int32_t { memory, events };
  What what{};
  std::int32_t device = 0;   // memory: the device that owns it, as numbered by the exporter
  std::uint64_t offset = 0;  // memory: position of the block in the device's file
  Exporter::Word word{};     // filled in by ask()
};

// Returns this process as an exporter. The first call starts the thread that answers.
Exporter export_from_here();
[[nodiscard]] bool is_here(const Exporter& exporter);

// Returns the descriptor of the requested file, which the caller must close. Returns -1 and sets
// `reason` if the process has ended, does not answer in 10 s, or refuses (e.g. for freed memory).
int ask(const Exporter& exporter, Request request, std::string& reason);

}  // namespace vgpu
