// Who may touch device memory: the threads that run a stream's operations, while they run them.
//
// Memory protection keys make this a matter of one register per thread: device memory carries its
// device's key, and a host thread has no rights to it, so that `*device_pointer` on the host faults
// as it does with a GPU. A kernel has the rights of its device and of the peers that were enabled.
// Where the processor has no such keys, nothing is protected (README, "What it does not see").
#pragma once

#include <cstdint>
#include <vector>

namespace vgpu {

// A new key, or -1 if there is none (left).
int new_key();

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
  std::uint32_t before_ = 0;
};

}  // namespace vgpu
