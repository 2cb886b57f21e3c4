#include "runtime/checkpoint/sha256.hpp"

#include <array>
#include <openssl/evp.h>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

EVP_MD_CTX* of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

void check(int ok) {
  if (ok != 1) throw Error("libcrypto could not compute a SHA-256");
}

}  // namespace

void Sha256::FreeContext::operator()(Context* context) const { EVP_MD_CTX_free(of(context)); }

// Context stands for EVP_MD_CTX: the header does not include OpenSSL.
Sha256::Sha256() : context_(static_cast<Context*>(static_cast<void*>(EVP_MD_CTX_new()))) {
  check(context_ != nullptr ? EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) : 0);
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  check(EVP_DigestFinal_ex(of(context_.get()), digest.data(), &size));
  std::string out;
  for (unsigned i = 0; i < size; ++i)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[digest.at(i) >> shift & 15];
  return out;
}

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace ringsmith
