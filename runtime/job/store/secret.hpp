// The secret that a job's processes share, and the handshake with which store and clients prove
// that they know it.
//
// The secret comes from the environment or from a file that only its owner can read. It is never an
// argument, because every user of a machine can see the command lines of all others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringsmith::comm {

inline constexpr const char* kSecretVariable = "RINGSMITH_SECRET";
inline constexpr const char* kSecretFileVariable = "RINGSMITH_SECRET_FILE";
inline constexpr const char* kSecretOfUser = ".ringsmith-secret";  // in the home folder

class Secret {
 public:
  static constexpr std::size_t kLeast = 16;   // bytes; fewer can be guessed from one handshake
  static constexpr std::size_t kMost = 4096;  // bytes

  static constexpr std::size_t kLeastKinds = 6;  // different bytes: "aaaa..." is guessed first

  // Throws UsageError if the secret is too short, too long or too simple; `origin` names its
  // source.
  Secret(std::string bytes, const std::string& origin);

  [[nodiscard]] static Secret random();  // 32 bytes from the kernel, in hexadecimal
  // Returns the file's content without trailing white space. Throws UsageError unless it is a
  // regular file of this user, not accessible to other users, with a valid secret.
  [[nodiscard]] static Secret from_file(const std::string& path);
  // Reads RINGSMITH_SECRET, or the file that RINGSMITH_SECRET_FILE names. Returns nothing if
  // neither is set.
  [[nodiscard]] static std::optional<Secret> from_environment();
  // Creates a file, mode 0600, with a random secret, and syncs it. Throws UsageError if the file
  // exists or cannot be created. If it cannot be written, removes it and throws Error.
  static void create_file(const std::string& path);
  // Reads the file .ringsmith-secret in the user's home folder. If it is missing, creates it and
  // sets `made` to true. All hosts that share the folder use one file. Throws UsageError if there
  // is no home folder, and as from_file() and create_file() do.
  [[nodiscard]] static Secret of_user(bool& made);
  // Returns a constant secret, which anyone can read in this program's source.
  [[nodiscard]] static Secret known_to_all();
  // Derives another secret, which reveals nothing about this one.
  [[nodiscard]] Secret derive(const std::string& purpose) const;

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

[[nodiscard]] std::string random_bytes(std::size_t n);  // from the kernel's generator

}  // namespace ringsmith::comm

namespace ringsmith::comm::store {

// Authentication of the store's connections.
//
// The secret never crosses the network. Each side sends 32 random bytes, and proves that it knows
// the secret with an HMAC-SHA256 (RFC 2104; test vectors in RFC 4231) over the random bytes of
// both. Both derive a session key from the secret and these bytes. Every frame carries a tag,
// computed with this key over its direction, sequence number and body, so altered, repeated,
// reordered and inserted frames are rejected. Bodies are not encrypted: the store holds addresses,
// not data.
//
//     store  -> client   "rngstr01" | Ns                     Ns, Nc: 32 random bytes
//     client -> store    Nc | HMAC(secret, "client" Ns Nc)
//     store  -> client   u8 accepted | HMAC(secret, "store" Ns Nc)
//     then frames        u32 length | body | HMAC(session key, direction, sequence, body)
inline constexpr std::string_view kMagic = "rngstr01";
inline constexpr std::size_t kNonce = 32;                      // bytes
inline constexpr std::size_t kTag = 32;                        // bytes
inline constexpr std::size_t kHello = kMagic.size() + kNonce;  // bytes, store to client
inline constexpr std::size_t kProof = kNonce + kTag;           // bytes, client to store
inline constexpr std::size_t kVerdict = 1 + kTag;              // bytes, store to client

// Makes libcrypto register its exit handlers now. Returns false if libcrypto does not work.
[[nodiscard]] bool start_crypto();

[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view text);
// Compares in constant time, which does not reveal where the tags differ.
[[nodiscard]] bool equal_tags(std::string_view a, std::string_view b);

struct Handshake {
  std::string store_nonce, client_nonce;
  [[nodiscard]] std::string client_proof(const Secret& secret) const;
  [[nodiscard]] std::string store_proof(const Secret& secret) const;
  [[nodiscard]] std::string session_key(const Secret& secret) const;
};

enum class Direction : char { to_store = 'r', to_client = 'a' };

class Sealer {
 public:
  Sealer(std::string key, Direction direction) : key_(std::move(key)), direction_(direction) {}
  [[nodiscard]] std::string seal(std::string_view body);

 private:
  std::string key_;
  Direction direction_;
  std::uint64_t sequence_ = 0;
};

class Opener {
 public:
  Opener(std::string key, Direction direction) : key_(std::move(key)), direction_(direction) {}
  // Removes the first frame from `bytes` and returns its body, or nothing if the frame is
  // incomplete. Throws CommError if the frame is too long or its tag is wrong.
  [[nodiscard]] std::optional<std::string> open(std::string& bytes);

 private:
  std::string key_;
  Direction direction_;
  std::uint64_t sequence_ = 0;
};

}  // namespace ringsmith::comm::store
