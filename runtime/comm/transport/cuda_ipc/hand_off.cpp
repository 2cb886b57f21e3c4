#include "runtime/comm/transport/cuda_ipc/hand_off.hpp"

#include "kernels/cuda/launch.hpp"

namespace ringsmith::comm::cuda_ipc {

void HandOff::reach(std::uint64_t stamp) {
  record(static_cast<std::uint32_t>(stamp % kMoveEvents));
  peers_.publish(peers_.mine().progress, stamp);
}

void HandOff::wait_for(int rank, std::uint64_t stamp) {
  const auto& progress = peers_.control(rank).progress;
  peers_.wait(rank, [&] { return progress.load() >= stamp; });
  wait_for_event(rank, static_cast<std::uint32_t>(stamp % kMoveEvents));
}

void HandOff::record(std::uint32_t event) {
  cuda_check(cudaEventRecord(device_peers_.event(peers_.rank(), event), stream_.get()));
}

void HandOff::wait_for_event(int rank, std::uint32_t event) {
  if (rank == peers_.rank()) return;  // one stream: in order
  cuda_check(cudaStreamWaitEvent(stream_.get(), device_peers_.event(rank, event), 0));
}

}  // namespace ringsmith::comm::cuda_ipc
