#include "runtime/comm/device/hand_off.hpp"

#include "kernels/cuda/launch.hpp"

namespace ringsmith::comm::cuda_ipc {

void HandOff::reach(std::uint64_t stamp) {
  record(static_cast<std::uint32_t>(stamp % kMoveEvents));
  host_.publish(host_.mine().progress, stamp);
}

void HandOff::wait_for(int rank, std::uint64_t stamp) {
  const auto& progress = host_.control(rank).progress;
  host_.wait(rank, [&] { return progress.load() >= stamp; });
  wait_for_event(rank, static_cast<std::uint32_t>(stamp % kMoveEvents));
}

void HandOff::record(std::uint32_t event) {
  cuda_check(cudaEventRecord(peers_.event(host_.rank(), event), stream_.get()));
}

void HandOff::wait_for_event(int rank, std::uint32_t event) {
  if (rank == host_.rank()) return;  // one stream: in order
  cuda_check(cudaStreamWaitEvent(stream_.get(), peers_.event(rank, event), 0));
}

}  // namespace ringsmith::comm::cuda_ipc
