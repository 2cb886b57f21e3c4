#include "runtime/comm/executor/p2p.hpp"

#include <algorithm>
#include <cstring>

namespace ringsmith::comm {

namespace {

struct Header {
  std::uint64_t dtype, count, sequence;
};

void send(Host& host, Outbox& out, int peer, const Transfer& transfer) {
  const auto room = [&] { return out.has_room(); };
  const Header header{static_cast<std::uint64_t>(transfer.call.dtype), transfer.call.count,
                      transfer.sequence};
  host.wait(peer, room);
  std::memcpy(out.slot(), &header, sizeof header);
  out.post();
  const std::size_t size = transfer.input.size().value;
  for (std::size_t at = 0; at < size; at += kSlotBytes) {
    host.at_step(static_cast<std::int64_t>(at / kSlotBytes));
    host.wait(peer, room);
    std::memcpy(out.slot(), transfer.input.data() + at, std::min(kSlotBytes, size - at));
    out.post();
  }
}

void receive(Host& host, Inbox& in, int peer, const Transfer& transfer) {
  const auto message = [&] { return in.has_message(); };
  host.wait(peer, message);
  Header header{};
  std::memcpy(&header, in.slot(), sizeof header);
  in.release();
  if (header.dtype != static_cast<std::uint64_t>(transfer.call.dtype) ||
      header.count != transfer.call.count) {
    Call theirs = transfer.call;
    theirs.op = Op::send;
    theirs.dtype = static_cast<DType>(header.dtype);
    theirs.count = header.count;
    theirs.root = host.rank();
    host.fail(FailureKind::mismatch, peer,
              "rank " + std::to_string(host.rank()) + " called " + transfer.call.describe() +
                  " but rank " + std::to_string(peer) + " called " + theirs.describe() + " #" +
                  std::to_string(header.sequence) + ": sender and receiver must agree");
  }
  const std::size_t size = transfer.output.size().value;
  for (std::size_t at = 0; at < size; at += kSlotBytes) {
    host.at_step(static_cast<std::int64_t>(at / kSlotBytes));
    host.wait(peer, message);
    std::memcpy(transfer.output.data() + at, in.slot(), std::min(kSlotBytes, size - at));
    in.release();
  }
}

}  // namespace

void run_p2p(Host& host, Channels& channels, const Transfer& transfer) {
  const int peer = transfer.call.root;
  if (transfer.call.op == Op::send)
    send(host, channels.out(peer, kSendLane), peer, transfer);
  else
    receive(host, channels.in(peer, kSendLane), peer, transfer);
}

}  // namespace ringsmith::comm
