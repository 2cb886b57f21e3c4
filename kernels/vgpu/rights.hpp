// Only threads that run a stream's operation can access device memory, and only during the
// operation.
//
// With memory protection keys, one register per thread decides this. Device memory has its device's
// key, for which a host thread has no rights, so `*device_pointer` on the host faults as it does
// with a GPU. A kernel has the rights of its device and of the enabled peers. Without keys, or if
// VGPU_PROTECTION_KEYS is 0, the memory is not protected, unless VGPU_GUARD is pages: then pages
// are made inaccessible between operations, which is slow and detects less (rights.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vgpu {

// Returns a new key, or -1 if none is left or there is no protection. Memory without a key is open
// to all.
int new_key();

// Gives the key to the pages, which are mapped for reading and writing. Does nothing for -1.
void give_key(std::byte* at, std::size_t bytes, int key);
// Called before the pages are unmapped.
void take_key(std::byte* at);

// For a fault handler: true if the thread lacked the key. `code` is the signal's si_code.
[[nodiscard]] bool wanted_key(const void* address, int code);

// Gives the thread the rights to the memory of some keys until the end of the scope.
class DeviceRights {
 public:
  // -1 gives no rights.
  explicit DeviceRights(int key) : DeviceRights(std::uint32_t{key >= 0 ? 1U << key : 0}) {}
  // Bit k of `keys` stands for key k.
  explicit DeviceRights(std::uint32_t keys);
  DeviceRights(const DeviceRights&) = delete;
  DeviceRights& operator=(const DeviceRights&) = delete;
  ~DeviceRights();

 private:
  std::uint32_t before_ = 0;  // Guard::keys: the register's old value; Guard::pages: the keys
};

}  // namespace vgpu
