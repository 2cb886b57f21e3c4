// What a call on a group with a device was given: memory of the host, or of that device.
#pragma once

#include "runtime/comm/device/monitor.hpp"
#include "runtime/comm/executor/transfer.hpp"

namespace ringsmith::comm {

// Notes in the transfer whether its buffers are the device's; if so, gives it an operation that
// starts after what the caller's current stream holds. UsageError for buffers of another device, or
// of both kinds in one call.
void prepare_for_device(Transfer& transfer, Device device);

}  // namespace ringsmith::comm
