// Keeps two kinds of calls in a process from overlapping: driver calls that may wait for running
// kernels, and launches of kernels that wait for each other.
//
// cudaMalloc, cudaFree and cudaHostAlloc may wait until the device is idle, and may block launches
// while they wait. With several ranks in a process, this occasionally causes a deadlock:
//
//   rank 0   launch [ring kernel: waits for rank 1's ......................
//   rank 1            cudaMalloc: waits for that kernel ...... launch: waits for cudaMalloc
//
// Two groups can form such a cycle across processes, with a process for each rank: rank 0 has
// launched X's kernel and allocates, rank 1 has launched Y's and allocates, and each allocation
// waits for a kernel that waits for the launch which the other allocation blocks.
//
// Therefore, once all ranks have reached the collective, each takes its process's gate for a joint
// launch. When all of them hold a gate, they launch and release it. (Ranks of one group, each in
// its own process, need not wait for each other's gates.) A driver call waits until no rank of its
// process holds the gate. Once all kernels of a collective are launched, they finish without help,
// and so do driver calls that wait for them. No rank may take the gate before all ranks have
// reached the collective, because a rank that has not arrived may still have to allocate.
#pragma once

#include "runtime/device/capture_guard.hpp"

namespace ringsmith {

// Held by a rank while it launches a kernel that waits for other ranks' kernels. No rank launches
// before all ranks hold theirs. A waiting DriverCall does not block new holders, because
// the current holders wait for the new ones.
class JointLaunch {
 public:
  JointLaunch();
  ~JointLaunch();
  JointLaunch(const JointLaunch&) = delete;
  JointLaunch& operator=(const JointLaunch&) = delete;
};

// Held during a driver call that allocates or frees; other threads' captures do not forbid such a
// call. No-op if nested or if the thread holds a JointLaunch. Acquire it before any lock that a
// thread with a JointLaunch may need, such as an allocator's.
class DriverCall {
 public:
  DriverCall();
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

 private:
  CaptureGuard beside_captures_;
  bool holds_;
};

}  // namespace ringsmith
