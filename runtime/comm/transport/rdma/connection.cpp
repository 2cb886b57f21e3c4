#include "runtime/comm/transport/rdma/connection.hpp"

#include <algorithm>
#include <arpa/inet.h>

namespace ringsmith::comm::rdma {

namespace {

// Every counter is at the start of a cache line.
constexpr std::size_t kCounterLine = 64;  // bytes
constexpr std::uint32_t kValueMask = (1U << Immediate::kValueBits) - 1;

void modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, const char* state) {
  if (const int error = ibv_modify_qp(queue_pair, &attributes, mask); error != 0)
    fail(std::string("bringing a queue pair to ") + state, error);
}

}  // namespace

std::uint32_t Immediate::pack(std::size_t offset, std::uint64_t value) {
  return static_cast<std::uint32_t>(offset / kCounterLine) << kValueBits |
         (static_cast<std::uint32_t>(value) & kValueMask);
}

std::size_t Immediate::offset(std::uint32_t immediate) {
  return std::size_t{immediate >> kValueBits} * kCounterLine;
}

std::uint64_t Immediate::value(std::uint32_t immediate, std::uint64_t before) {
  return before + ((immediate - static_cast<std::uint32_t>(before)) & kValueMask);
}

Connection::Connection(const Adapter& adapter, ibv_cq* completions, std::byte* mirror,
                       const Layout& layout, int rank)
    : base_(mirror), first_slot_(layout.first_slot()) {
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  mirror_ = register_memory(adapter, mirror, first_slot_, kAccess);
  slots_ =
      register_memory(adapter, mirror + layout.slots(rank, 0), layout.slots_of_peer(), kAccess);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {kSends, kReceives, 1, 1, NetworkTransport::kCopied};
  queue_pair_.reset(ibv_create_qp(adapter.domain.get(), &wanted));
  if (!queue_pair_) fail("making a queue pair of " + std::to_string(kSends) + " requests");
}

Endpoint Connection::endpoint() const {
  return {queue_pair_->qp_num, first_packet_, mirror_->rkey, slots_->rkey,
          reinterpret_cast<std::uint64_t>(base_)};
}

void Connection::connect(const Adapter& adapter, const Endpoint& theirs, const PortAddress& port) {
  theirs_ = theirs;
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = adapter.port;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(queue_pair_.get(), init,
         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  for (int i = 0; i < kReceives; ++i)
    if (const std::string trouble = await_more(); !trouble.empty())
      throw CommError("rdma: " + trouble);
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = std::min(adapter.mtu, port.mtu);
  ready.dest_qp_num = theirs.queue_pair;
  ready.rq_psn = theirs.first_packet;  // the peer chose it at random
  ready.max_dest_rd_atomic = 1;
  ready.min_rnr_timer = 12;  // 0.64 ms
  ready.ah_attr.is_global = adapter.ethernet || port.lid == 0 ? 1 : 0;
  ready.ah_attr.dlid = port.lid;
  ready.ah_attr.port_num = adapter.port;
  ready.ah_attr.grh.dgid = port.gid;
  ready.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(adapter.gid_index);
  ready.ah_attr.grh.hop_limit = 64;
  modify(queue_pair_.get(), ready,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "RTR (can its GID reach the other host's GID?)");
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = 18;   // 1.07 s until a retry, because a busy host may not answer sooner
  send.retry_cnt = 7;  // after 7 retries the connection fails
  send.rnr_retry = 7;  // unlimited, because the group's deadline applies
  send.sq_psn = first_packet_;
  send.max_rd_atomic = 1;
  modify(queue_pair_.get(), send,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
}

void Connection::write(std::size_t offset, const std::byte* from, std::size_t size,
                       std::uint32_t key) {
  if (size == 0) return;
  Request& request = noted_.emplace_back();
  request.offset = offset;
  request.size = static_cast<std::uint32_t>(size);
  request.key = key;
  if (size <= request.copy.size())
    std::memcpy(request.copy.data(), from, size);
  else
    request.data = from;
}

// Attaches the counter to the last queued write, or to an empty one if that has a counter already.
void Connection::publish(std::size_t offset, std::uint64_t value) {
  if (noted_.empty() || noted_.back().counter) noted_.emplace_back();
  noted_.back().counter = true;
  noted_.back().immediate = Immediate::pack(offset, value);
}

std::string Connection::post() {
  while (!noted_.empty() && posted_ - done_ < kSends) {
    const bool signalled = (posted_ + 1) % kSignalEvery == 0;
    if (const int error = post_one(noted_.front(), signalled); error != 0)
      return std::string("the send queue refused a request: ") + std::strerror(error);
    noted_.pop_front();
  }
  return {};
}

int Connection::post_one(const Request& request, bool signalled) {
  const std::byte* const from = request.data == nullptr ? request.copy.data() : request.data;
  ibv_sge piece{reinterpret_cast<std::uint64_t>(from), request.size, request.key};
  ibv_send_wr work{};
  work.wr_id = posted_ + 1;
  work.sg_list = &piece;
  work.num_sge = request.size > 0 ? 1 : 0;
  work.opcode = request.counter ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (signalled) work.send_flags |= IBV_SEND_SIGNALED;
  if (request.data == nullptr && request.size > 0) work.send_flags |= IBV_SEND_INLINE;
  work.imm_data = htonl(request.immediate);
  work.wr.rdma.remote_addr = theirs_.address + request.offset;
  work.wr.rdma.rkey = request.offset < first_slot_ ? theirs_.key : theirs_.slots_key;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(queue_pair_.get(), &work, &refused);
  if (error == 0) ++posted_;
  return error;
}

void Connection::ask_for_completion() {
  if (posted_ - done_ < kSends) (void)post_one({}, true);
}

std::string Connection::await_more() {
  ibv_recv_wr work{};  // an immediate value needs a receive request, but no memory
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(queue_pair_.get(), &work, &refused);
  return error == 0 ? ""
                    : std::string("the receive queue refused a request: ") + std::strerror(error);
}

}  // namespace ringsmith::comm::rdma
