// Tests peer access with data before a group relies on it.
//
// Behind some PCIe bridges and in some virtual machines, opening a peer's handle succeeds, but data
// written through it never arrives. Therefore every rank writes a word into every other rank's
// memory and reads a word from it, with the same atomic accesses as the kernels of the rings, and
// all ranks agree on the result.
//
//   area of rank r:   [ from 0 ][ from 1 ] ... [ r's own, for others to read ] ... [ from n - 1 ]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/device/device_memory.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm::cuda_ipc {

class Ping {
 public:
  // Creates this rank's area. Must be called before DevicePeers::meet().
  Ping(Segments& segments, DevicePeers& device_peers, DeviceArena& arena);

  // Collective; must be called after meet(). Opens the peers' memory and synchronizes the current
  // stream. Returns "" if every rank can read and write the memory of every other rank, and
  // otherwise the failure of the lowest rank that has one; all ranks return the same text.
  [[nodiscard]] std::string exchange(Bootstrap& bootstrap, const std::vector<Whereabouts>& ranks);

 private:
  [[nodiscard]] std::string write_and_read(const std::vector<Whereabouts>& ranks);
  [[nodiscard]] std::string look(const std::vector<Whereabouts>& ranks) const;

  Segments& segments_;
  DevicePeers& device_peers_;
  std::shared_ptr<CommMemory> area_;
};

}  // namespace ringsmith::comm::cuda_ipc
