#include "runtime/job/store/secret.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <set>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/job/store/store.hpp"

namespace ringsmith::comm {

std::string random_bytes(std::size_t n) {
  std::string out(n, '\0');
  for (std::size_t have = 0; have < n;) {
    const ssize_t got = getrandom(out.data() + have, n - have, 0);
    if (got < 0 && errno != EINTR) throw CommError("getrandom failed");
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  return out;
}

namespace {

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

Secret::Secret(std::string bytes, const std::string& origin) : bytes_(std::move(bytes)) {
  require(bytes_.size() >= kLeast, "the secret in " + origin + " has " +
                                       std::to_string(bytes_.size()) +
                                       " bytes; it needs at least " + std::to_string(kLeast));
  require(bytes_.size() <= kMost,
          "the secret in " + origin + " has more than " + std::to_string(kMost) + " bytes");
  const std::set<char> kinds(bytes_.begin(), bytes_.end());
  require(kinds.size() >= kLeastKinds,
          "the secret in " + origin + " has only " + std::to_string(kinds.size()) +
              " different characters, which can be guessed: 'ringrun --make-secret FILE' makes a "
              "good one");
}

Secret Secret::random() { return {hexadecimal(random_bytes(32)), "random bytes"}; }

Secret Secret::from_file(const std::string& path) {
  const std::string name = "the secret's file '" + path + "'";
  // O_NONBLOCK: opening a FIFO of that name must not block.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(file.valid(), "cannot read " + name + ": " + std::strerror(errno));
  struct stat info {};
  require(fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode), name + " is not a regular file");
  require(info.st_uid == geteuid(), name + " belongs to another user");
  require((info.st_mode & 077) == 0, name + " can be read by others: chmod 600 it");
  std::string bytes(kMost + 1, '\0');
  const ssize_t n = read(file.get(), bytes.data(), bytes.size());
  require(n >= 0, "cannot read " + name + ": " + std::strerror(errno));
  bytes.resize(static_cast<std::size_t>(n));
  bytes.erase(bytes.find_last_not_of(" \t\r\n") + 1);
  return {bytes, name};
}

std::optional<Secret> Secret::from_environment() {
  if (const char* text = std::getenv(kSecretVariable); text != nullptr)
    return Secret(text, std::string("the variable ") + kSecretVariable);
  if (const char* path = std::getenv(kSecretFileVariable); path != nullptr) return from_file(path);
  return {};
}

void Secret::create_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  require(file.valid(),
          "cannot make the secret's file '" + path + "': " + std::strerror(errno) +
              (errno == EEXIST ? "; use this secret, or give the new one another name" : ""));
  const std::string text = random().bytes() + "\n";
  const ssize_t n = write(file.get(), text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size()) && fsync(file.get()) == 0) return;
  const bool cut_short = n >= 0 && n < static_cast<ssize_t>(text.size());
  const std::string why = cut_short ? "not enough space" : std::strerror(errno);
  unlink(path.c_str());  // otherwise the next attempt would find it
  throw Error("cannot write the secret's file '" + path + "': " + why);
}

Secret Secret::of_user(bool& made) {
  const char* const home = std::getenv("HOME");
  require(home != nullptr && *home != '\0',
          "HOME is not set: it names the folder of the user's secret");
  const std::string path = std::string(home) + "/" + kSecretOfUser;
  if (access(path.c_str(), F_OK) != 0) {
    // Writes the file under another name, then links it: ringruns of other nodes may share the
    // folder and must never read an incomplete file.
    const std::string aside = path + "." + random_name();
    create_file(aside);
    made = link(aside.c_str(), path.c_str()) == 0;
    const int error = errno;
    unlink(aside.c_str());
    require(made || error == EEXIST,
            "cannot make the secret's file '" + path + "': " + std::strerror(error));
  }
  return from_file(path);
}

Secret Secret::known_to_all() { return {"no secret: open to everyone", "this program"}; }

Secret Secret::derive(const std::string& purpose) const {
  return {hexadecimal(store::hmac_sha256(bytes_, "derived " + purpose)), "a derived secret"};
}

}  // namespace ringsmith::comm

namespace ringsmith::comm::store {

namespace {

constexpr std::size_t kLength = 4;  // bytes before a frame's body

std::string tag_of(const std::string& key, Direction direction, std::uint64_t sequence,
                   std::string_view body) {
  std::string text(1, static_cast<char>(direction));
  append_number(text, sequence, 8);
  text += body;
  return hmac_sha256(key, text);
}

}  // namespace

// Passes an option, because the call would do nothing without one.
bool start_crypto() { return OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr) == 1; }

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string out(kTag, '\0');
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(out.data()), &length) == nullptr ||
      length != kTag)
    throw CommError("libcrypto could not compute an HMAC-SHA256");
  return out;
}

bool equal_tags(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The first word distinguishes the three values, so that none can be passed off as another.
std::string Handshake::client_proof(const Secret& secret) const {
  return hmac_sha256(secret.bytes(), "client" + store_nonce + client_nonce);
}
std::string Handshake::store_proof(const Secret& secret) const {
  return hmac_sha256(secret.bytes(), "store" + store_nonce + client_nonce);
}
std::string Handshake::session_key(const Secret& secret) const {
  return hmac_sha256(secret.bytes(), "session" + store_nonce + client_nonce);
}

std::string Sealer::seal(std::string_view body) {
  std::string frame;
  append_number(frame, body.size(), kLength);
  frame += body;
  return frame += tag_of(key_, direction_, sequence_++, body);
}

std::optional<std::string> Opener::open(std::string& bytes) {
  if (bytes.size() < kLength) return {};
  const std::size_t length = read_number(std::string_view(bytes).substr(0, kLength));
  if (length > kMostMessage) throw CommError("a frame is longer than any message to the store");
  if (bytes.size() < kLength + length + kTag) return {};
  std::string body = bytes.substr(kLength, length);
  if (!equal_tags(std::string_view(bytes).substr(kLength + length, kTag),
                  tag_of(key_, direction_, sequence_, body)))
    throw CommError("a frame of the store's session does not carry the right tag");
  ++sequence_;
  bytes.erase(0, kLength + length + kTag);
  return body;
}

}  // namespace ringsmith::comm::store
