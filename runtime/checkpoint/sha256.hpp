// SHA-256 (FIPS 180-4), computed by libcrypto. `sha256sum` prints the same digits. A digest detects
// damage, but not tampering: an attacker who can change a file can also change the manifest that
// holds its digest.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace ringsmith {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::string hex();  // 64 digits; ends the computation

 private:
  struct Context;
  struct FreeContext {
    void operator()(Context* context) const;
  };
  std::unique_ptr<Context, FreeContext> context_;
};

[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);

}  // namespace ringsmith
