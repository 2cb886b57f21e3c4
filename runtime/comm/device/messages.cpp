#include "runtime/comm/device/messages.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/launch.hpp"

namespace ringsmith::comm::cuda_ipc {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{512} << 10;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Stream::current().get()));
}

}  // namespace

Messages::Messages(Host& host, Channels& channels, Peers& peers, DeviceArena& arena,
                   HandOff& hand_off)
    : host_(host),
      channels_(channels),
      peers_(peers),
      arena_(arena),
      hand_off_(hand_off),
      slots_(static_cast<std::size_t>(host.size())) {}

void Messages::run(const Transfer& transfer) {
  if (transfer.call.op == Op::send)
    send(transfer);
  else
    receive(transfer);
}

void Messages::send(const Transfer& transfer) {
  const int peer = transfer.call.root;
  Outbox& out = channels_.out(peer, kSendLane);
  Slots& slots = slots_[static_cast<std::size_t>(peer)];
  if (!slots.memory) slots.memory = arena_.allocate(Bytes(kSlots * kPieceBytes));
  send_header(host_, out, transfer);
  const std::size_t size = transfer.input.size().value;
  for (std::size_t at = 0; at < size; at += kPieceBytes) {
    host_.at_step(static_cast<std::int64_t>(at / kPieceBytes));
    // Room on the host's lane is room on the device: every piece has a message there.
    host_.wait(peer, [&] { return out.has_room(); });
    if (slots.sent >= kSlots) hand_off_.wait_for_event(peer, kCreditEvent);
    std::byte* const slot = slots.memory->data() + slots.sent++ % kSlots * kPieceBytes;
    copy_bytes(slot, transfer.input.data() + at, std::min(kPieceBytes, size - at));
    hand_off_.record(kMessageEvent);
    const Location location = *arena_.locate(slot, Bytes(kPieceBytes));
    std::memcpy(out.slot(), &location, sizeof location);
    out.post(sizeof location);
  }
}

void Messages::receive(const Transfer& transfer) {
  const int peer = transfer.call.root;
  Inbox& in = channels_.in(peer, kSendLane);
  receive_header(host_, in, transfer);
  const std::size_t size = transfer.output.size().value;
  for (std::size_t at = 0; at < size; at += kPieceBytes) {
    host_.at_step(static_cast<std::int64_t>(at / kPieceBytes));
    host_.wait(peer, [&] { return in.has_message(); });
    Location location = 0;
    std::memcpy(&location, in.slot(), sizeof location);
    hand_off_.wait_for_event(peer, kMessageEvent);
    copy_bytes(transfer.output.data() + at, peers_.address(peer, location),
               std::min(kPieceBytes, size - at));
    hand_off_.record(kCreditEvent);
    in.release();
  }
}

}  // namespace ringsmith::comm::cuda_ipc
