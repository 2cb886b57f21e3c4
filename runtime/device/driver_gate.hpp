// Prevents driver calls that may wait for running kernels from overlapping, within a process, with
// launches of kernels that wait for each other.
//
// A driver may block cudaMalloc, cudaFree and cudaHostAlloc until the work on the device ends, and
// block launches meanwhile. If ranks share a process, this occasionally causes a deadlock:
//
//   rank 0   launch [ring kernel: waits for rank 1's ......................
//   rank 1            cudaMalloc: waits for that kernel ...... launch: waits for cudaMalloc
//
// So the ranks of a process take the gate for a joint launch once all of them have reached the
// collective. When all of them hold it, they launch and leave it. A driver call waits until no rank
// holds the gate. Once all kernels of a collective are launched, they end by themselves, and so do
// driver calls that wait for them. No rank may take the gate before all have arrived, because a
// rank that has not arrived yet may have to allocate first.
#pragma once

namespace ringsmith {

// Held by a rank that is about to launch a kernel that waits for other ranks' kernels. No rank
// launches before all ranks of the process hold it. Any number of threads may hold it: a waiting
// DriverCall does not keep later ones out, because the threads that hold it wait for these.
class JointLaunch {
 public:
  JointLaunch();
  ~JointLaunch();
  JointLaunch(const JointLaunch&) = delete;
  JointLaunch& operator=(const JointLaunch&) = delete;
};

// Held around a call that allocates or frees. A no-op if nested, or within the thread's own
// JointLaunch. Take it before any lock that a thread with a JointLaunch may need.
class DriverCall {
 public:
  DriverCall();
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

 private:
  bool holds_;
};

}  // namespace ringsmith
