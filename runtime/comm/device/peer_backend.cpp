// Calls on the memory of GPUs of one host, which reach each other's memory.
//
//     call --> checked, an event on the caller's stream --> queue --> roll call (the hosts agree)
//          --> engine a or b on the group's stream, after that event --> an event: done
//          --> wait(): the caller's stream goes on after it
//
// What a failure on the device does: monitor.hpp.
#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/backend.hpp"
#include "runtime/comm/transport/cuda_ipc/engine_a.hpp"
#include "runtime/comm/transport/cuda_ipc/engine_b.hpp"
#include "runtime/comm/transport/cuda_ipc/messages.hpp"
#include "runtime/comm/transport/cuda_ipc/monitor.hpp"

namespace ringsmith::comm {

using namespace std::chrono_literals;

namespace {

// How long a group that ends waits for its peers to let go of its memory: in good order, and after
// a failure.
constexpr std::chrono::milliseconds kFarewell{2000}, kHastyFarewell{1000};
// A call on the device may fail because of a death that nobody has noticed yet.
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

class PeerBackend : public DeviceBackend {
 public:
  PeerBackend(Bootstrap& bootstrap, const Group& group, CudaEngine wish,
              const cuda_ipc::Tuning& tuning)
      : group_(group) {
    const DeviceGuard guard(group.device);
    const StreamGuard stream_guard(group.stream);
    const auto ranks = cuda_ipc::exchange_whereabouts(bootstrap, group.device);
    decision_ = cuda_ipc::decide(ranks, wish);
    peers_ = std::make_unique<cuda_ipc::Peers>(bootstrap, group.host, group.device, ranks);
    arena_ = std::make_shared<cuda_ipc::DeviceArena>(group.stream, peers_->mine(),
                                                     peers_->catalogue_memory());
    hand_off_ = std::make_unique<cuda_ipc::HandOff>(group.host, *peers_, group.stream);
    RollCall& roll_call = group.engine.roll_call();
    engine_a_ =
        std::make_unique<cuda_ipc::EngineA>(group.host, roll_call, *peers_, *arena_, *hand_off_);
    messages_ = std::make_unique<cuda_ipc::Messages>(group.host, group.engine.channels(), *peers_,
                                                     *arena_, *hand_off_);
    if (decision_.engine == CudaEngine::b)
      engine_b_ = std::make_unique<cuda_ipc::EngineB>(group.host, roll_call, *peers_, *arena_,
                                                      decision_.shape, tuning);
    monitor_ = std::make_shared<cuda_ipc::Monitor>(group.host, *peers_, group.device,
                                                   engine_b_ ? engine_b_->trouble() : nullptr);
    const auto world = static_cast<std::size_t>(group.host.size());
    buffers_ = {std::vector<std::byte*>(world), std::vector<std::byte*>(world)};
    peers_->meet(bootstrap);
  }

  ~PeerBackend() override {
    const DeviceGuard guard(group_.device);
    monitor_->stop();
    const auto farewell = group_.host.is_usable() ? kFarewell : kHastyFarewell;
    if (becomes_idle(group_.stream, farewell)) {
      peers_->close();
      if (peers_->wait_for_others_to_close(farewell)) return;
    } else {
      peers_->abandon();
    }
    // Freeing would wait for a device that waits for a peer, or free what a peer still reads.
    arena_->abandon();
    if (engine_b_) engine_b_->abandon();
  }
  PeerBackend(const PeerBackend&) = delete;
  PeerBackend& operator=(const PeerBackend&) = delete;

  void run(Transfer& transfer) override {
    Host& host = group_.host;
    host.check_usable();
    host.enter(transfer.call, transfer.sequence, transfer.called_at());
    try {
      launch(transfer);
    } catch (const CudaError& error) {
      Host::Trouble trouble;
      for (auto waited = 0ms; trouble.kind == FailureKind::none && waited < kNotice;
           waited += 1ms) {
        std::this_thread::sleep_for(1ms);
        trouble = host.look_for_trouble(-1);
      }
      if (trouble.kind == FailureKind::none)
        trouble = {FailureKind::other, -1,
                   "rank " + std::to_string(host.rank()) + ": " + error.what()};
      host.record_failure(trouble.kind, trouble.culprit, trouble.text);
      monitor_->give_up();
      throw_failure(trouble.kind, trouble.text, host.where(trouble.culprit));
    } catch (...) {  // the host's side has reported it
      monitor_->give_up();
      throw;
    }
    host.leave();
  }

  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return arena_->allocate(size);
  }
  [[nodiscard]] HostWait host_wait() const override {
    return [monitor = monitor_](const cuda_ipc::Operation& operation) {
      monitor->wait_for(operation);
    };
  }
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
      RollCall& roll_call = group_.engine.roll_call();
      const auto locate = [&](const ConstBuffer& buffer) {
        return arena_->locate(buffer.data(), buffer.size()).value_or(kNotShared);
      };
      roll_call.answer(transfer.call, transfer.sequence, locate(transfer.input),
                       locate(transfer.output));
      roll_call.await_all();
      const Sharing sharing = look_at_buffers(
          roll_call, transfer.call, group_.host.size(), buffers_,
          [&](int r, std::uint64_t location) { return peers_->address(r, location); });
      if (engine_b_ && engine_b_->serves(transfer.call, sharing))
        engine_b_->run(transfer, buffers_, number);
      else
        engine_a_->run(transfer, sharing, buffers_);
    }
    transfer.operation->launched(number, transfer.call.describe(), transfer.sequence,
                                 group_.stream);
    monitor_->watch(transfer.operation);
  }

  Group group_;
  cuda_ipc::Decision decision_;
  std::unique_ptr<cuda_ipc::Peers> peers_;
  std::shared_ptr<cuda_ipc::DeviceArena> arena_;
  std::unique_ptr<cuda_ipc::HandOff> hand_off_;
  std::unique_ptr<cuda_ipc::EngineA> engine_a_;
  std::unique_ptr<cuda_ipc::Messages> messages_;
  std::unique_ptr<cuda_ipc::EngineB> engine_b_;
  std::shared_ptr<cuda_ipc::Monitor> monitor_;  // also held by what has been launched
  Buffers buffers_;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_peer_backend(Bootstrap& bootstrap,
                                                 const DeviceBackend::Group& group, CudaEngine wish,
                                                 const cuda_ipc::Tuning& tuning) {
  return std::make_unique<PeerBackend>(bootstrap, group, wish, tuning);
}

}  // namespace ringsmith::comm
