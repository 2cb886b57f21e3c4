#include "runtime/base/copy_bytes.hpp"

#include <cstdint>
#include <cstring>

namespace ringsmith {

namespace {

constexpr std::size_t kVector = 32, kBlock = 8 * kVector;
// Below it the C library uses loads and stores itself.
constexpr std::size_t kLarge = 1024;
typedef std::uint64_t Vector __attribute__((vector_size(kVector), aligned(1), may_alias));

void copy_block(std::byte* to, const std::byte* from) {
  Vector block[kBlock / kVector];
  for (std::size_t i = 0; i < kBlock / kVector; ++i)
    block[i] = reinterpret_cast<const Vector*>(from)[i];
  for (std::size_t i = 0; i < kBlock / kVector; ++i) reinterpret_cast<Vector*>(to)[i] = block[i];
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  const auto distance =
      reinterpret_cast<std::uintptr_t>(out) - reinterpret_cast<std::uintptr_t>(in);
  const bool apart = distance >= bytes && std::uintptr_t{0} - distance >= bytes;
  if (bytes < kLarge || !apart) {
    std::memmove(to, from, bytes);
    return;
  }
  for (std::size_t at = 0; at + kBlock <= bytes; at += kBlock) {
    copy_block(out + at, in + at);
    asm volatile("" ::: "memory");  // or the compiler finds a memcpy in the loop, and calls it
  }
  copy_block(out + bytes - kBlock, in + bytes - kBlock);  // what is left, and some once more
}

}  // namespace ringsmith
