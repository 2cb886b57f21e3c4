// Keeps two things apart within a process: driver calls that may wait for running kernels, and
// launches of kernels that wait for each other.
//
// A driver may block cudaMalloc, cudaFree and cudaHostAlloc until the work on the device ends, and
// block launches meanwhile. If ranks share a process, that is an occasional deadlock:
//
//   rank 0   launch [ring kernel: waits for rank 1's ......................
//   rank 1            cudaMalloc: waits for that kernel ...... launch: waits for cudaMalloc
//
// So the ranks of a process take the gate for a joint launch once all of them have reached the
// collective; when all of them hold it, they launch and leave it. A driver call waits until no rank
// holds it. Once all kernels of a collective are launched they end by themselves, and so do calls
// that wait for them. (No rank may hold the gate before all have arrived: a rank that has not
// arrived yet may have to allocate first.)
#pragma once

namespace ringsmith {

// Held by a rank that is about to launch a kernel that waits for the kernels of other ranks; none
// of them launches before all hold this. Any number of threads may hold it: a waiting DriverCall
// lets later ones through, because the earlier ones wait for them.
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
