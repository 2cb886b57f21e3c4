#include "kernels/vgpu/rights.hpp"

#include <array>
#include <map>
#include <mutex>
#include <signal.h>
#include <sys/mman.h>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

// Rights to device memory by whole pages, if the processor has no memory protection keys and
// VGPU_GUARD=pages requests them.
//
// A device's memory is closed (PROT_NONE) while no running kernel or copy has its key, and open to
// all threads otherwise. So while a device is working, neither an access by the host nor an access
// by a device that is not a peer is detected. A kernel or copy costs up to two system calls per
// live allocation of its devices, and each call walks the allocation's pages. With megabytes of
// memory, or several processes on few cores, most of the time is spent in these calls. Therefore
// pages are not the default and serve only to test the reports of such accesses.
namespace page_rights {

constexpr std::size_t kKeys = 32;  // key 0 is for all other memory

struct Key {
  int holders = 0;
  std::map<std::byte*, std::size_t> ranges;  // sizes by address
};

// Never destroyed, because streams' workers may outlive main().
struct State {
  std::mutex mutex;
  std::array<Key, kKeys> keys;
  int given = 0;
};

State& state() {
  static auto* const s = new State;
  return *s;
}

void set_access(std::byte* at, std::size_t bytes, bool open) {
  if (::mprotect(at, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    fatal("cannot change the protection of device memory: too many allocations for this system");
}

template <class Body>
void for_each_key(State& s, std::uint32_t keys, Body body) {
  for (std::size_t k = 1; k < kKeys; ++k)
    if ((keys >> k & 1U) != 0) body(s.keys[k]);
}

// Returns a new key, 1 to 31, or -1 if none is left.
int new_key() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  return s.given + 1 < static_cast<int>(kKeys) ? ++s.given : -1;
}

// Closes the pages of this allocation whenever the key has no holder.
void add(std::byte* at, std::size_t bytes, int key) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  Key& k = s.keys[static_cast<std::size_t>(key)];
  k.ranges[at] = bytes;
  if (k.holders == 0) set_access(at, bytes, false);
}

void remove(std::byte* at) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for (Key& key : s.keys) key.ranges.erase(at);
}

// The caller holds the keys (bit k: key k) from begin() to end().
void begin(std::uint32_t keys) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for_each_key(s, keys, [](Key& key) {
    if (++key.holders > 1) return;
    for (const auto& [at, bytes] : key.ranges) set_access(at, bytes, true);
  });
}

void end(std::uint32_t keys) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for_each_key(s, keys, [](Key& key) {
    if (--key.holders > 0) return;
    for (const auto& [at, bytes] : key.ranges) set_access(at, bytes, false);
  });
}

bool guards(const void* address) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for (const Key& key : s.keys)
    for (const auto& [at, bytes] : key.ranges)
      if (at <= address && address < at + bytes) return true;
  return false;
}

}  // namespace page_rights

#if defined(__x86_64__)
constexpr bool kKnowsRegister = true;
// The register has two bits for every key: 1 forbids access, 2 forbids writing.
std::uint32_t read_rights() {
  std::uint32_t rights = 0, high = 0;
  asm volatile(".byte 0x0f, 0x01, 0xee" : "=a"(rights), "=d"(high) : "c"(0));
  return rights;
}

void write_rights(std::uint32_t rights) {
  asm volatile(".byte 0x0f, 0x01, 0xef" : : "a"(rights), "c"(0), "d"(0) : "memory");
}
#else  // other processors' keys, if there are any, are unused
constexpr bool kKnowsRegister = false;
std::uint32_t read_rights() { return 0; }
void write_rights(std::uint32_t) {}
#endif

// True if keys can be used. The test requests a key and gives it back.
bool have_keys() {
  if (!kKnowsRegister || !Settings::get().protection_keys) return false;
  const int key = ::pkey_alloc(0, 0);
  if (key < 0) return false;
  ::pkey_free(key);
  return true;
}

// Returns keys if any protection is requested and keys exist, otherwise pages if requested.
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
