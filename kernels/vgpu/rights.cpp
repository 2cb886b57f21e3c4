#include "kernels/vgpu/rights.hpp"

#include <signal.h>
#include <sys/mman.h>

#include "kernels/vgpu/page_rights.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

#if defined(__x86_64__)
constexpr bool kKnowsRegister = true;
// The register holds two bits for every key: 1 forbids access, 2 forbids writing.
std::uint32_t read_rights() {
  std::uint32_t rights = 0, high = 0;
  asm volatile(".byte 0x0f, 0x01, 0xee" : "=a"(rights), "=d"(high) : "c"(0));
  return rights;
}

void write_rights(std::uint32_t rights) {
  asm volatile(".byte 0x0f, 0x01, 0xef" : : "a"(rights), "c"(0), "d"(0) : "memory");
}
#else  // other processors' keys, where there are any, stay unused
constexpr bool kKnowsRegister = false;
std::uint32_t read_rights() { return 0; }
void write_rights(std::uint32_t) {}
#endif

// Whether the processor and the system have keys to give; the first is asked for, and given back.
bool have_keys() {
  static const bool have = [] {
    if (!kKnowsRegister || !Settings::get().protection_keys) return false;
    const int key = ::pkey_alloc(0, 0);
    if (key < 0) return false;
    ::pkey_free(key);
    return true;
  }();
  return have;
}

}  // namespace

int new_key() {
  return have_keys() ? ::pkey_alloc(0, PKEY_DISABLE_ACCESS) : page_rights::new_key();
}

void give_key(std::byte* at, std::size_t bytes, int key) {
  if (key < 0) return;
  if (have_keys())
    ::pkey_mprotect(at, bytes, PROT_READ | PROT_WRITE, key);
  else
    page_rights::add(at, bytes, key);
}

void take_key(std::byte* at) {
  if (!have_keys()) page_rights::remove(at);
}

bool wanted_key(const void* address, int code) {
  return have_keys() ? code == SEGV_PKUERR : page_rights::guards(address);
}

DeviceRights::DeviceRights(std::uint32_t keys) {
  if (!have_keys()) {
    before_ = keys;
    page_rights::begin(keys);
    return;
  }
  before_ = read_rights();
  std::uint32_t rights = before_;
  for (int key = 1; key < 16; ++key)
    if ((keys >> key & 1U) != 0) rights &= ~(3U << (2 * key));
  write_rights(rights);
}

DeviceRights::~DeviceRights() {
  if (have_keys())
    write_rights(before_);
  else
    page_rights::end(before_);
}

}  // namespace vgpu
