// Runs the kernel engine under the explorer; each thread of a block is a thread of the program. The
// kernels are compiled for the emulator (kernels/vgpu), but device.cpp implements the few emulator
// functions that they call.
#pragma once

#include <cuda_runtime.h>
#include <memory>
#include <vector>

#include "runtime/comm/device/calls.hpp"
#include "tests/memory_order/explored/handoff.hpp"

namespace explorer {

// A program's devices: one per rank, with one block of `threads` threads each.
class Devices {
 public:
  Devices(int ranks, int threads);
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
  ~Devices();
  // Returns the program's threads, rank by rank. `body` calls launch_ring() etc., which run the
  // kernel in the calling thread.
  Program program(const std::function<void(int rank, int thread)>& body,
                  const std::shared_ptr<void>& keep) const;

 private:
  struct World;
  friend int vgpu::barrier(vgpu::Combine, bool, const vgpu::Source&);
  friend unsigned vgpu::vote(vgpu::Vote, unsigned, bool, const vgpu::Source&);
  static World* current;  // of the most recent program
  std::unique_ptr<World> world_;
};

}  // namespace explorer
