#include "runtime/comm/bootstrap/store/seal.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/message.hpp"

namespace ringsmith::comm::store {

namespace {

constexpr std::size_t kLength = 4;  // bytes in front of a frame

std::string tag_of(const std::string& key, Direction direction, std::uint64_t sequence,
                   std::string_view body) {
  std::string text(1, static_cast<char>(direction));
  append_number(text, sequence, 8);
  text += body;
  return hmac_sha256(key, text);
}

}  // namespace

// With no option at all the call would do nothing.
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

// The first word keeps the three apart: no answer of one kind can be passed off as another.
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
