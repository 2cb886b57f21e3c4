#include <algorithm>
#include <cstring>

#include "runtime/comm/executor/executors.hpp"

namespace ringsmith::comm {

void send_header(Peers& peers, Outbox& out, int peer) {
  const CallRecord& record = peers.segments().mine().board.record;
  const MessageHeader header{record.call.load(), record.count.load(), record.sequence.load(),
                             record.site.load()};
  peers.wait(peer, [&] { return out.has_room(); });
  std::memcpy(out.slot(), &header, sizeof header);
  out.post(sizeof header);
}

void receive_header(Peers& peers, Inbox& in, const Transfer& transfer) {
  const int peer = transfer.call.root;
  peers.wait(peer, [&] { return in.has_message(); });
  MessageHeader header{};
  std::memcpy(&header, in.slot(), sizeof header);
  in.release();
  const Call& mine = transfer.call;
  const Call theirs = Call::unpack(header.call, header.count);
  if (theirs.dtype == mine.dtype && theirs.count == mine.count &&
      theirs.on_device == mine.on_device)
    return;
  peers.health().fail(
      FailureKind::mismatch, peer,
      "rank " + std::to_string(peers.rank()) + " called " + mine.describe() + " #" +
          std::to_string(transfer.sequence) +
          peers.health().at_site(peers.rank(), peers.segments().mine().board.record.site.load()) +
          " but rank " + std::to_string(peer) + " called " + theirs.describe() + " #" +
          std::to_string(header.sequence) + peers.health().at_site(peer, header.site) +
          ": sender and receiver must agree");
}

namespace {

void send_payload(Peers& peers, Outbox& out, const Transfer& transfer) {
  send_header(peers, out, transfer.call.root);
  const std::size_t size = transfer.input.size().value;
  const std::size_t most = peers.segments().message_bytes();
  for (std::size_t at = 0; at < size; at += most) {
    peers.health().at_step(static_cast<std::int64_t>(at / most));
    peers.wait(transfer.call.root, [&] { return out.has_room(); });
    const std::size_t part = std::min(most, size - at);
    std::memcpy(out.slot(), transfer.input.data() + at, part);
    out.post(part);
  }
}

void receive_payload(Peers& peers, Inbox& in, const Transfer& transfer) {
  receive_header(peers, in, transfer);
  const std::size_t size = transfer.output.size().value;
  const std::size_t most = peers.segments().message_bytes();
  for (std::size_t at = 0; at < size; at += most) {
    peers.health().at_step(static_cast<std::int64_t>(at / most));
    peers.wait(transfer.call.root, [&] { return in.has_message(); });
    std::memcpy(transfer.output.data() + at, in.slot(), std::min(most, size - at));
    in.release();
  }
}

}  // namespace

void run_p2p(Peers& peers, Channels& channels, const Transfer& transfer) {
  const int peer = transfer.call.root;
  if (transfer.call.collective == Collective::send)
    send_payload(peers, channels.out(peer, kSendLane), transfer);
  else
    receive_payload(peers, channels.in(peer, kSendLane), transfer);
}

}  // namespace ringsmith::comm
