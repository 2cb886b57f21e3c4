// Which rank is on which device, and what follows: which engine a group can use, and why no better.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/device/station.hpp"
#include "runtime/comm/types/options.hpp"

namespace ringsmith::comm::cuda_ipc {

struct Whereabouts {
  std::string process;  // the same for ranks of one process, and for no others
  std::string uuid;     // of the device: the same for ranks that share it
  Device device;        // as its own process numbers it
  std::string name;     // of the device
  Shape shape;          // that engine B would take on this device
  std::string reaches;  // by rank: '1' if this rank's device can reach that rank's memory
};

// Collective: those of all ranks, in rank order.
[[nodiscard]] std::vector<Whereabouts> exchange_whereabouts(Bootstrap& bootstrap, Device device);

struct Decision {
  CudaEngine engine = CudaEngine::a;
  Shape shape;                     // of engine B, on all ranks
  std::vector<std::string> lines;  // for people
  std::string refused;             // why neither engine serves: a device cannot reach another one
};

// Pure: all ranks come to the same decision. UsageError if an engine is asked for that no device
// can reach the others with, or b where its kernels would deadlock.
// The UsageError that says so.
[[noreturn]] void throw_unreachable(CudaEngine asked, const std::string& why);
[[nodiscard]] Decision decide(const std::vector<Whereabouts>& ranks, CudaEngine asked);

}  // namespace ringsmith::comm::cuda_ipc
