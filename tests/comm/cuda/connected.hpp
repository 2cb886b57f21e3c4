// The devices of the tests in this folder.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith::test {

// Returns the number of devices, from the first on, that can access each other's memory. It is 1 on
// a machine without peer access, where these tests run on a single device.
inline int connected_devices() {
  const auto reaches = [](int from, int to) {
    int can = 0;
    cuda_check(cudaDeviceCanAccessPeer(&can, from, to));
    return can != 0;
  };
  for (int device = 1; device < device_count(); ++device)
    for (int earlier = 0; earlier < device; ++earlier)
      if (!reaches(device, earlier) || !reaches(earlier, device)) return device;
  return device_count();
}

}  // namespace ringsmith::test
