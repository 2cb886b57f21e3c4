// Calls that may wait for running kernels, and kernels that wait for each other: never both at a
// time in a process.
//
// A driver may let cudaMalloc, cudaFree and cudaHostAlloc wait for what runs on the device, and let
// launches wait meanwhile. Where ranks share a process that is a deadlock, now and then:
//
//   rank 0   launch [ring kernel: waits for rank 1's ......................
//   rank 1            cudaMalloc: waits for that kernel ...... launch: waits for cudaMalloc
//
// So the ranks of a process, once all have come to the collective, take the gate for a joint
// launch; when all of them have it, they launch and leave it. A call to the driver waits until
// nobody holds it. Once all kernels of a collective are launched they end by themselves, and what
// waits for them may. (Before all have come nobody may hold it: a rank that is still to come may
// have to allocate first.)
#pragma once

namespace ringsmith {

// This rank is about to launch a kernel that waits for other ranks'; all of them are, and none does
// before all hold this. Many at a time: who waits with a DriverCall lets those through that come
// later, since the ones before them wait for them.
class JointLaunch {
 public:
  JointLaunch();
  ~JointLaunch();
  JointLaunch(const JointLaunch&) = delete;
  JointLaunch& operator=(const JointLaunch&) = delete;
};

// Around a call that allocates or frees. Nested ones, and one within the thread's own JointLaunch,
// do nothing. To be made before any lock that a thread with a JointLaunch may want.
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
