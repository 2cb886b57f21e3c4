#include "kernels/vgpu/page_rights.hpp"

#include <array>
#include <map>
#include <mutex>
#include <sys/mman.h>

#include "kernels/vgpu/error.hpp"

namespace vgpu::page_rights {

namespace {

constexpr std::size_t kKeys = 32;  // key 0 is that of all other memory

struct Key {
  int holders = 0;
  std::map<std::byte*, std::size_t> ranges;  // their bytes
};

// Never destroyed: streams' workers may outlive main().
struct State {
  std::mutex mutex;
  std::array<Key, kKeys> keys;
  int given = 0;
};

State& state() {
  static auto* const s = new State;
  return *s;
}

void set(std::byte* at, std::size_t bytes, bool open) {
  if (::mprotect(at, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    fatal("cannot change the rights of device memory: too many allocations for this system");
}

template <class Body>
void for_each_key(State& s, std::uint32_t keys, Body body) {
  for (std::size_t k = 1; k < kKeys; ++k)
    if ((keys >> k & 1U) != 0) body(s.keys[k]);
}

}  // namespace

int new_key() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  return s.given + 1 < static_cast<int>(kKeys) ? ++s.given : -1;
}

void add(std::byte* at, std::size_t bytes, int key) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  Key& k = s.keys[static_cast<std::size_t>(key)];
  k.ranges[at] = bytes;
  if (k.holders == 0) set(at, bytes, false);
}

void remove(std::byte* at) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for (Key& key : s.keys) key.ranges.erase(at);
}

void begin(std::uint32_t keys) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for_each_key(s, keys, [](Key& key) {
    if (++key.holders > 1) return;
    for (const auto& [at, bytes] : key.ranges) set(at, bytes, true);
  });
}

void end(std::uint32_t keys) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  for_each_key(s, keys, [](Key& key) {
    if (--key.holders > 0) return;
    for (const auto& [at, bytes] : key.ranges) set(at, bytes, false);
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

}  // namespace vgpu::page_rights
