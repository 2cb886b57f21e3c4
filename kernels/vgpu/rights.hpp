// Who may touch device memory: the threads that run a stream's operations, while they run them.
//
// Memory protection keys make this a matter of one register per thread: device memory carries its
// device's key, and a host thread has no rights to it, so that `*device_pointer` on the host faults
// as it does with a GPU. A kernel has the rights of its device and of the peers that were enabled.
// Where the processor has no such keys, or VGPU_PROTECTION_KEYS is 0, nothing guards the memory,
// unless VGPU_GUARD=pages asks for pages that are closed and opened instead, which costs much time
// and sees less (rights.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vgpu {

// A new key, or -1 if there is none left, or no guard: the device's memory is then open to all.
int new_key();

// The pages, mapped to be read and written, get the key; -1: nothing happens.
void give_key(std::byte* at, std::size_t bytes, int key);
// Before they are unmapped.
void take_key(std::byte* at);

// For a fault handler: was the access refused for want of a key? `code` is the signal's si_code.
[[nodiscard]] bool wanted_key(const void* address, int code);

// Rights to the memory of these keys until the end of the scope; -1 is no key.
class DeviceRights {
 public:
  explicit DeviceRights(int key) : DeviceRights(std::uint32_t{key >= 0 ? 1U << key : 0}) {}
  // Bit k: key k.
  explicit DeviceRights(std::uint32_t keys);
  DeviceRights(const DeviceRights&) = delete;
  DeviceRights& operator=(const DeviceRights&) = delete;
  ~DeviceRights();

 private:
  std::uint32_t before_ = 0;  // the register; by pages, the keys themselves; else nothing
};

}  // namespace vgpu
