#include "runtime/comm/device_group.hpp"

#include "kernels/cuda/launch.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::comm {

using cuda_ipc::Operation;
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

}  // namespace

DeviceGroup::DeviceGroup(const std::shared_ptr<Bootstrap>& bootstrap, const GroupOptions& options,
                         cuda_ipc::Tuning tuning)
    : GroupOnDevice(bootstrap, options) {
  const DeviceGuard guard(device_);
  const StreamGuard stream_guard(stream_);
  const auto ranks = cuda_ipc::exchange_whereabouts(*bootstrap, device_);
  decision_ = cuda_ipc::decide(ranks, options.engine);
  peers_ = std::make_unique<cuda_ipc::DevicePeers>(*bootstrap, host_, device_, ranks);
  arena_ =
      std::make_shared<cuda_ipc::DeviceArena>(stream_, peers_->mine(), peers_->catalogue_memory());
  hand_off_ = std::make_unique<cuda_ipc::HandOff>(host_, *peers_, stream_);
  RollCall& roll_call = engine_.roll_call();
  engine_a_ = std::make_unique<cuda_ipc::EngineA>(host_, roll_call, *peers_, *arena_, *hand_off_);
  messages_on_device_ =
      std::make_unique<cuda_ipc::Messages>(host_, engine_.channels(), *peers_, *arena_, *hand_off_);
  if (decision_.engine == CudaEngine::b)
    engine_b_ = std::make_unique<cuda_ipc::EngineB>(host_, roll_call, *peers_, *arena_,
                                                    decision_.shape, tuning);
  monitor_ = std::make_shared<cuda_ipc::Monitor>(host_, *peers_, device_,
                                                 engine_b_ ? engine_b_->trouble() : nullptr);
  const auto world = static_cast<std::size_t>(host_.size());
  buffers_ = {std::vector<std::byte*>(world), std::vector<std::byte*>(world)};
  peers_->meet(*bootstrap);
}

DeviceGroup::~DeviceGroup() {
  queue_.stop();
  const DeviceGuard guard(device_);
  monitor_->stop();
  const auto farewell = host_.is_usable() ? kFarewell : kHastyFarewell;
  if (becomes_idle(stream_, farewell)) {
    peers_->close();
    if (peers_->wait_for_others_to_close(farewell)) return;
  } else {
    peers_->abandon();
  }
  // Freeing would wait for a device that waits for a peer, or pull the rug from under one.
  arena_->abandon();
  if (engine_b_) engine_b_->abandon();
}

std::shared_ptr<CommMemory> DeviceGroup::allocate_on(Device where, Bytes size) {
  if (where == device_) return arena_->allocate(size);
  return HostGroup::allocate_on(where, size);
}

GroupOnDevice::HostWait DeviceGroup::host_wait() const {
  return [monitor = monitor_](const Operation& operation) { monitor->wait_for(operation); };
}

void DeviceGroup::execute(Transfer& transfer, bool foreground) {
  if (!transfer.call.on_device) return HostGroup::execute(transfer, foreground);
  number(transfer);
  const trace::Span span(transfer.call.name(), trace::Category::comm,
                         {"bytes", static_cast<std::int64_t>(transfer.call.bytes())});
  host_.hold_core(foreground);
  host_.check_usable();
  host_.enter(transfer.call, transfer.sequence, transfer.called_at());
  try {
    execute_on_device(transfer);
  } catch (const CudaError& error) {
    Host::Trouble trouble;
    for (auto waited = 0ms; trouble.kind == FailureKind::none && waited < kNotice; waited += 1ms) {
      std::this_thread::sleep_for(1ms);
      trouble = host_.look_for_trouble(-1);
    }
    if (trouble.kind == FailureKind::none)
      trouble = {FailureKind::other, -1, "rank " + std::to_string(rank()) + ": " + error.what()};
    host_.record_failure(trouble.kind, trouble.culprit, trouble.text);
    monitor_->give_up();
    throw_failure(trouble.kind, trouble.text, host_.where(trouble.culprit));
  } catch (...) {  // the host's side has reported it
    monitor_->give_up();
    throw;
  }
  host_.leave();
}

void DeviceGroup::execute_on_device(Transfer& transfer) {
  const DeviceGuard guard(device_);
  const StreamGuard stream_guard(stream_);
  const std::uint64_t number = monitor_->next_number();
  stream_.wait(transfer.operation->ready());
  const Op op = transfer.call.op;
  if (op == Op::send || op == Op::recv) {
    messages_on_device_->run(transfer);
  } else {
    hand_off_->record(cuda_ipc::kReadyEvent);
    RollCall& roll_call = engine_.roll_call();
    const auto locate = [&](const ConstBuffer& buffer) {
      return arena_->locate(buffer.data(), buffer.size()).value_or(kNotShared);
    };
    roll_call.answer(transfer.call, transfer.sequence, locate(transfer.input),
                     locate(transfer.output));
    roll_call.await_all();
    const Sharing sharing = look_at_buffers(
        roll_call, transfer.call, size(), buffers_,
        [&](int r, std::uint64_t location) { return peers_->address(r, location); });
    if (engine_b_ && engine_b_->serves(transfer.call, sharing))
      engine_b_->run(transfer, buffers_, number);
    else
      engine_a_->run(transfer, sharing, buffers_);
  }
  transfer.operation->launched(number, transfer.call.describe(), transfer.sequence, stream_);
  monitor_->watch(transfer.operation);
}

}  // namespace ringsmith::comm
