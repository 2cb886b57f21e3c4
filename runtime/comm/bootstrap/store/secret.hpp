// The secret that the processes of one job share, and strangers on the network do not.
//
// It comes from the environment or from a file that only its owner can read. It is never an
// argument: every user of a machine sees the command lines of all others.
#pragma once

#include <optional>
#include <string>

namespace ringsmith::comm {

inline constexpr const char* kSecretVariable = "RINGSMITH_SECRET";
inline constexpr const char* kSecretFileVariable = "RINGSMITH_SECRET_FILE";

class Secret {
 public:
  static constexpr std::size_t kLeast = 16;   // bytes; less can be guessed from one handshake
  static constexpr std::size_t kMost = 4096;  // bytes

  static constexpr std::size_t kLeastKinds = 6;  // different ones: "aaaa..." is guessed at once

  // UsageError if it is too short, too long or too simple; `origin` says where it came from.
  Secret(std::string bytes, const std::string& origin);

  [[nodiscard]] static Secret random();  // 32 bytes from the kernel, in hexadecimal
  // The file's content without white space at its end. UsageError unless it is a plain file of
  // ours that nobody else may read.
  [[nodiscard]] static Secret from_file(const std::string& path);
  // RINGSMITH_SECRET, else the file that RINGSMITH_SECRET_FILE names, else nothing.
  [[nodiscard]] static std::optional<Secret> from_environment();
  // Makes a new file, mode 0600, with a random secret, on the disk when this returns. UsageError if
  // there is one of that name; Error, and no file, if the disk has no room for it.
  static void create_file(const std::string& path);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

[[nodiscard]] std::string random_bytes(std::size_t n);  // from the kernel's generator

}  // namespace ringsmith::comm
