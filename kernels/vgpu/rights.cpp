#include "kernels/vgpu/rights.hpp"

#include <sys/mman.h>

namespace vgpu {

namespace {

// The register holds two bits for every key: 1 forbids access, 2 forbids writing.
std::uint32_t read_rights() {
  std::uint32_t rights = 0, high = 0;
  asm volatile(".byte 0x0f, 0x01, 0xee" : "=a"(rights), "=d"(high) : "c"(0));
  return rights;
}

void write_rights(std::uint32_t rights) {
  asm volatile(".byte 0x0f, 0x01, 0xef" : : "a"(rights), "c"(0), "d"(0) : "memory");
}

bool have_keys = false;

}  // namespace

int new_key() {
  const int key = ::pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key >= 0) have_keys = true;
  return key;
}

DeviceRights::DeviceRights(std::uint32_t keys) {
  if (!have_keys) return;
  before_ = read_rights();
  std::uint32_t rights = before_;
  for (int key = 1; key < 16; ++key)
    if ((keys >> key & 1U) != 0) rights &= ~(3U << (2 * key));
  write_rights(rights);
}

DeviceRights::~DeviceRights() {
  if (have_keys) write_rights(before_);
}

}  // namespace vgpu
