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
  if (!kKnowsRegister || !Settings::get().protection_keys) return false;
  const int key = ::pkey_alloc(0, 0);
  if (key < 0) return false;
  ::pkey_free(key);
  return true;
}

// What guards device memory here: that which was asked for, or the next that can be had.
Guard guard() {
  static const Guard here = [] {
    const Guard wanted = Settings::get().guard;
    if (wanted != Guard::none && have_keys()) return Guard::keys;
    return wanted == Guard::pages ? Guard::pages : Guard::none;
  }();
  return here;
}

}  // namespace

int new_key() {
  switch (guard()) {
    case Guard::keys:
      return ::pkey_alloc(0, PKEY_DISABLE_ACCESS);
    case Guard::pages:
      return page_rights::new_key();
    case Guard::none:
      return -1;
  }
  return -1;
}

void give_key(std::byte* at, std::size_t bytes, int key) {
  if (key < 0) return;
  if (guard() == Guard::keys)
    ::pkey_mprotect(at, bytes, PROT_READ | PROT_WRITE, key);
  else
    page_rights::add(at, bytes, key);
}

void take_key(std::byte* at) {
  if (guard() == Guard::pages) page_rights::remove(at);
}

bool wanted_key(const void* address, int code) {
  return guard() == Guard::keys ? code == SEGV_PKUERR : page_rights::guards(address);
}

DeviceRights::DeviceRights(std::uint32_t keys) {
  if (guard() == Guard::none) return;
  if (guard() == Guard::pages) {
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
  if (guard() == Guard::keys)
    write_rights(before_);
  else if (guard() == Guard::pages)
    page_rights::end(before_);
}

}  // namespace vgpu
