// Runs calls on the memory of GPUs of one host that can access each other's memory.
//
//     call --> check, event on the caller's stream --> queue --> agreement barrier of the hosts
//          --> an engine on the group's stream, after that event --> event: done
//          --> wait(): the caller's stream continues after it
#include <atomic>
#include <set>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/backend.hpp"
#include "runtime/comm/device/kernel_engine.hpp"
#include "runtime/comm/device/monitor.hpp"
#include "runtime/comm/device/ping.hpp"
#include "runtime/comm/device/stream_engine.hpp"
#include "runtime/device/driver_gate.hpp"

namespace ringsmith::comm {

using namespace std::chrono_literals;

namespace {

// How long a group's destructor waits for its device, and for peers to close its memory: normally,
// and after a failure.
constexpr std::chrono::milliseconds kFarewell{2000}, kHastyFarewell{1000};
// How long to look for a failed peer after a CUDA error, because a peer's death may be the cause.
constexpr std::chrono::milliseconds kNotice{500};

bool becomes_idle(const Stream& stream, std::chrono::milliseconds most) {
  try {
    for (const auto end = std::chrono::steady_clock::now() + most; !stream.is_idle();) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  } catch (const CudaError&) {
    return false;
  }
}

// Counts the groups of this process that launch on devices.
class Counted {
 public:
  Counted() { ++count(); }
  ~Counted() { --count(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  [[nodiscard]] bool several() const { return count() > 1; }

 private:
  static std::atomic<int>& count() {
    static std::atomic<int> groups{0};
    return groups;
  }
};

// Thrown on all ranks if a rank cannot use another rank's memory.
struct Refused {
  std::string why;
};

class PeerBackend : public DeviceBackend {
 public:
  PeerBackend(Bootstrap& bootstrap, const Group& group, CudaEngine wish,
              const cuda_ipc::Tuning& tuning)
      : group_(group) {
    const DeviceGuard guard(group.device);
    const StreamGuard stream_guard(group.stream);
    const auto ranks = cuda_ipc::exchange_whereabouts(bootstrap, group.device);
    decision_ = cuda_ipc::decide(ranks, wish);
    std::set<std::string> processes;
    for (const cuda_ipc::Whereabouts& w : ranks) processes.insert(w.process);
    share_process_ = processes.size() < ranks.size();
    if (!decision_.refused.empty()) throw Refused{decision_.refused};
    device_peers_ = std::make_unique<cuda_ipc::DevicePeers>(bootstrap, group.peers.segments(),
                                                            group.device, ranks);
    arena_ = std::make_shared<cuda_ipc::DeviceArena>(group.stream, device_peers_->mine(),
                                                     device_peers_->catalogue_memory());
    cuda_ipc::Ping ping(group.peers.segments(), *device_peers_, *arena_);
    hand_off_ = std::make_unique<cuda_ipc::HandOff>(group.peers, *device_peers_, group.stream);
    AgreementBarrier& agreement = group.dispatcher.agreement();
    stream_engine_ = std::make_unique<cuda_ipc::StreamEngine>(group.peers, agreement,
                                                              *device_peers_, *arena_, *hand_off_);
    messages_ = std::make_unique<cuda_ipc::Messages>(group.peers, group.dispatcher.channels(),
                                                     *device_peers_, *arena_, *hand_off_);
    if (decision_.engine == CudaEngine::kernel)
      kernel_engine_ = std::make_unique<cuda_ipc::KernelEngine>(
          group.peers, agreement, *device_peers_, *arena_, decision_.shape, tuning);
    monitor_ =
        std::make_shared<cuda_ipc::Monitor>(group.peers.health(), *device_peers_, group.device,
                                            kernel_engine_ ? kernel_engine_->report() : nullptr);
    const auto world = static_cast<std::size_t>(group.peers.size());
    buffers_ = {std::vector<std::byte*>(world), std::vector<std::byte*>(world)};
    device_peers_->meet(bootstrap);
    const std::string broken = ping.exchange(bootstrap, ranks);
    if (broken.empty()) return;
    // A peer's memory must be closed before its owner frees it.
    device_peers_->close();
    if (!device_peers_->wait_for_others_to_close(kFarewell)) arena_->abandon();
    if (wish != CudaEngine::automatic) cuda_ipc::throw_unreachable(wish, broken);
    throw Refused{broken};
  }

  ~PeerBackend() override {
    const DeviceGuard guard(group_.device);
    monitor_->stop();
    const auto farewell = group_.peers.health().is_usable() ? kFarewell : kHastyFarewell;
    if (becomes_idle(group_.stream, farewell)) {
      device_peers_->close();
      if (device_peers_->wait_for_others_to_close(farewell)) return;
    } else {
      device_peers_->abandon();
    }
    // Does not free the memory: that would block if the device waits for a peer, and a peer may
    // still access the memory.
    arena_->abandon();
    if (kernel_engine_) kernel_engine_->abandon();
  }
  PeerBackend(const PeerBackend&) = delete;
  PeerBackend& operator=(const PeerBackend&) = delete;

  void run(Transfer& transfer) override {
    Peers& peers = group_.peers;
    peers.health().check_usable();
    peers.health().enter(transfer.call, transfer.sequence, transfer.called_at());
    try {
      launch(transfer);
    } catch (const CudaError& error) {
      Health::Failed failed;
      for (auto waited = 0ms; failed.kind == FailureKind::none && waited < kNotice; waited += 1ms) {
        std::this_thread::sleep_for(1ms);
        failed = peers.health().look_for_failure(-1);
      }
      if (failed.kind == FailureKind::none)
        failed = {FailureKind::other, -1,
                  "rank " + std::to_string(peers.rank()) + ": " + error.what()};
      peers.health().record_failure(failed.kind, failed.culprit, failed.text);
      monitor_->give_up();
      throw_failure(failed.kind, failed.text, peers.health().where(failed.culprit));
    } catch (...) {  // Peers has reported the failure
      monitor_->give_up();
      throw;
    }
    peers.health().leave();
  }

  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return arena_->allocate(size);
  }
  [[nodiscard]] HostWait host_wait() const override {
    return [monitor = monitor_](const cuda_ipc::DeviceOperation& operation) {
      monitor->wait_for(operation);
    };
  }
  void give_up() noexcept override { monitor_->give_up(); }
  [[nodiscard]] CudaEngine engine() const override { return decision_.engine; }
  [[nodiscard]] std::vector<std::string> describe() const override { return decision_.lines; }

 private:
  void launch(Transfer& transfer) {
    const DeviceGuard guard(group_.device);
    const StreamGuard stream_guard(group_.stream);
    const std::uint64_t number = monitor_->next_number();
    group_.stream.wait(transfer.operation->ready());
    if (transfer.call.is_message()) {
      messages_->run(transfer);
    } else {
      hand_off_->record(cuda_ipc::kReadyEvent);
      AgreementBarrier& agreement = group_.dispatcher.agreement();
      const auto locate = [&](const ConstBuffer& buffer) {
        return arena_->locate(buffer.data(), buffer.size()).value_or(kNotShared);
      };
      agreement.answer(locate(transfer.input), locate(transfer.output), counted_.several());
      agreement.await_all();
      bool launch_together = share_process_;
      for (int r = 0; r < group_.peers.size(); ++r)
        launch_together |= agreement.answer_of(r).several.load(std::memory_order_relaxed) != 0;
      const Sharing sharing = look_at_buffers(
          agreement, transfer.call, group_.peers.size(), buffers_,
          [&](int r, std::uint64_t location) { return device_peers_->address(r, location); });
      const Choice choice = choose(transfer.call, group_.peers.size(),
                                   kernel_engine_ ? Route::kernel : Route::stream, sharing);
      if (kernel_engine_) kernel_engine_->prepare(choice);
      const JointLaunch together;
      if (launch_together) {  // no rank launches before all hold the gate: driver_gate.hpp
        agreement.answer();
        agreement.await_all();
      }
      if (is_kernel(choice.executor))
        kernel_engine_->run(choice, transfer, buffers_, sharing, number);
      else
        stream_engine_->run(choice, transfer, sharing, buffers_);
    }
    transfer.operation->launched(number, transfer.call.describe(), transfer.sequence,
                                 group_.stream);
    monitor_->watch(transfer.operation);
  }

  Group group_;
  cuda_ipc::Decision decision_;
  bool share_process_ = false;  // true if any ranks share a process
  Counted counted_;
  std::unique_ptr<cuda_ipc::DevicePeers> device_peers_;
  std::shared_ptr<cuda_ipc::DeviceArena> arena_;
  std::unique_ptr<cuda_ipc::HandOff> hand_off_;
  std::unique_ptr<cuda_ipc::StreamEngine> stream_engine_;
  std::unique_ptr<cuda_ipc::Messages> messages_;
  std::unique_ptr<cuda_ipc::KernelEngine> kernel_engine_;
  std::shared_ptr<cuda_ipc::Monitor> monitor_;  // also held by the HostWait of each Work
  Buffers buffers_;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_peer_backend(Bootstrap& bootstrap,
                                                 const DeviceBackend::Group& group, CudaEngine wish,
                                                 const cuda_ipc::Tuning& tuning,
                                                 std::string& refused) {
  try {
    return std::make_unique<PeerBackend>(bootstrap, group, wish, tuning);
  } catch (const Refused& r) {
    refused = r.why;
    return nullptr;
  }
}

}  // namespace ringsmith::comm
