// Bytes between the CPU and devices, and between devices.
//
//   cpu -> cuda    host copies into pinned memory, the device's current stream takes it from there;
//                  the source may be overwritten at once
//   cuda -> cpu    the same the other way, and the host waits for it
//   cuda -> cuda   on the source's current stream: after everything queued on the target's, which
//                  then goes on after the copy. The host does not wait
#pragma once

#include <cstddef>

#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith {

// The ranges must not overlap, and must be allocated on the devices that are named.
void transfer(std::byte* to, Device to_device, const std::byte* from, Device from_device,
              Bytes size);

// Lets kernels and copies on `device` use `peer`'s memory directly, once for all. False if the
// hardware has no way between them.
bool enable_peer_access(Device device, Device peer);

}  // namespace ringsmith
