// Plain device memory, for tests that must not depend on the tested allocators.
#pragma once

#include <memory>

#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith::test {

// Returns uninitialised memory from cudaMalloc.
[[nodiscard]] std::shared_ptr<std::byte> device_bytes(Device device, std::size_t bytes);

// Copies in the order of the device's current stream, and waits. A no-op on the CPU if source and
// destination are the same.
void copy_on_device(void* to, const void* from, std::size_t bytes, Device device);

}  // namespace ringsmith::test
