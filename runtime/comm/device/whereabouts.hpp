// Finds the device of each rank, and chooses the engine of the group.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/device/station.hpp"
#include "runtime/comm/types/options.hpp"

namespace ringsmith::comm::cuda_ipc {

struct Whereabouts {
  std::string process;  // equal for two ranks exactly if they are in one process
  std::string uuid;     // of the device: equal for ranks that share it
  Device device;        // as numbered in the rank's process
  std::string name;     // of the device
  Shape shape;          // the kernel engine's choice for this device
  std::string reaches;  // by rank: '0' if this rank's device cannot reach that rank's memory
  int resident = 0;     // blocks of the kernel engine that the device holds simultaneously
};

// Collective. Returns the whereabouts of all ranks, in rank order. Loads the kernel engine's
// kernels on this rank's device.
[[nodiscard]] std::vector<Whereabouts> exchange_whereabouts(Bootstrap& bootstrap, Device device);

struct Decision {
  CudaEngine engine = CudaEngine::stream;
  Shape shape;                     // of the kernel engine, on all ranks
  std::vector<std::string> lines;  // description of the decision, for the user
  std::string refused;             // why no engine works: a device cannot reach another one
};

[[noreturn]] void throw_unreachable(CudaEngine asked, const std::string& why);
// Chooses the engine: a pure function, so all ranks make the same decision. Throws UsageError if an
// engine is requested but the devices cannot reach each other, or if the kernel engine is requested
// but its kernels cannot run simultaneously: processes share a device, or a device cannot hold all
// blocks of its ranks.
[[nodiscard]] Decision decide(const std::vector<Whereabouts>& ranks, CudaEngine asked);

}  // namespace ringsmith::comm::cuda_ipc
