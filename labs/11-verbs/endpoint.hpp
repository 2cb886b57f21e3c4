// Lab 11: one end of an RDMA connection, from the device to a write that announces itself.
//
//     ours                                         theirs
//     outbox --RDMA WRITE WITH IMMEDIATE---------> inbox      no code at their end is involved
//                                        value --> a completion in their queue: poll() returns it
//
// The calls are libibverbs' own (man ibv_post_send and so on). This file compiles against the kit's
// simulated device and against a real one.
#pragma once

#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <infiniband/verbs.h>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "labs/kit/todo.hpp"

namespace lab11 {

// The data that the peer needs to communicate with this end; the caller transfers it.
struct Address {
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;  // the number of the first packet that this end will send
  ibv_gid gid{};
  std::uint16_t lid = 0;
  std::uint64_t inbox = 0;  // address, length and key of the memory that the peer may write
  std::uint64_t inbox_bytes = 0;
  std::uint32_t inbox_key = 0;
};

struct Limits {
  int sends = 16;     // requests in the send queue, at least 2
  int receives = 16;  // requests in the receive queue
  int gid_index = 1;
};

[[noreturn]] inline void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

class Endpoint {
 public:
  // Task 1. Opens the device of this name, or throws std::runtime_error with the name if there is
  // none. Creates a protection domain; a memory region for the inbox, which the peer may write, and
  // one for the outbox, which it may not; a completion queue with room for all requests that may
  // complete; a queue pair (RC) with these limits. The memory is the caller's and does not move.
  Endpoint(const std::string& device, std::span<std::byte> inbox, std::span<std::byte> outbox,
           Limits limits = {})
      : inbox_(inbox), outbox_(outbox), limits_(limits) {
#ifdef SOLUTION
    try {
      open(device);
      domain_ = ibv_alloc_pd(context_);
      if (!domain_) fail("ibv_alloc_pd", errno);
      inbox_region_ = ibv_reg_mr(domain_, inbox.data(), inbox.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
      if (!inbox_region_) fail("ibv_reg_mr of the inbox", errno);
      outbox_region_ = ibv_reg_mr(domain_, outbox.data(), outbox.size(), 0);
      if (!outbox_region_) fail("ibv_reg_mr of the outbox", errno);
      // After an error every request completes, signalled or not.
      completions_ = ibv_create_cq(context_, limits.sends + limits.receives, nullptr, nullptr, 0);
      if (!completions_) fail("ibv_create_cq", errno);
      ibv_qp_init_attr wanted{};
      wanted.send_cq = wanted.recv_cq = completions_;
      wanted.qp_type = IBV_QPT_RC;
      wanted.cap = {std::uint32_t(limits.sends), std::uint32_t(limits.receives), 1, 1, 0};
      pair_ = ibv_create_qp(domain_, &wanted);
      if (!pair_) fail("ibv_create_qp", errno);
    } catch (...) {
      give_back();
      throw;
    }
#else
    (void)device, (void)inbox, (void)outbox, (void)limits;
    kit::todo("task 1, Endpoint");
#endif
  }

  // Task 6. Releases everything; the constructor must do the same if it fails half-way.
  ~Endpoint() {
#ifdef SOLUTION
    give_back();
#endif
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Task 1. Returns the data for the peer. You may choose the first packet's number, which has 24
  // bits.
  [[nodiscard]] Address address() const {
#ifdef SOLUTION
    Address mine;
    mine.queue_pair = pair_->qp_num;
    mine.first_packet = (pair_->qp_num * 2654435761U) & 0xffffff;
    if (const int error = ibv_query_gid(context_, 1, limits_.gid_index, &mine.gid); error != 0)
      fail("ibv_query_gid", errno);
    ibv_port_attr port{};
    if (const int error = ibv_query_port(context_, 1, &port); error != 0)
      fail("ibv_query_port", error);
    mine.lid = port.lid;
    mine.inbox = reinterpret_cast<std::uint64_t>(inbox_.data());
    mine.inbox_bytes = inbox_.size();
    mine.inbox_key = inbox_region_->rkey;
    return mine;
#else
    kit::todo("task 1, address");
#endif
  }

  // Task 2. Moves the queue pair through RESET, INIT, RTR (ready to receive) and RTS (ready to
  // send), with all receive requests posted before the peer may send. Port 1, MTU 1024, a global
  // route (RoCE), hop limit 64; min_rnr_timer 12, timeout 18, retry_cnt 7; no limit on retries
  // while the peer is not ready.
  void connect(const Address& theirs) {
#ifdef SOLUTION
    theirs_ = theirs;
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
    for (int i = 0; i < limits_.receives; ++i) post_receive();
    ibv_qp_attr ready{};
    ready.qp_state = IBV_QPS_RTR;
    ready.path_mtu = IBV_MTU_1024;
    ready.dest_qp_num = theirs.queue_pair;
    ready.rq_psn = theirs.first_packet;
    ready.max_dest_rd_atomic = 1;
    ready.min_rnr_timer = 12;
    ready.ah_attr.is_global = 1;
    ready.ah_attr.dlid = theirs.lid;
    ready.ah_attr.port_num = 1;
    ready.ah_attr.grh.dgid = theirs.gid;
    ready.ah_attr.grh.sgid_index = std::uint8_t(limits_.gid_index);
    ready.ah_attr.grh.hop_limit = 64;
    modify(ready,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
           "RTR");
    ibv_qp_attr send{};
    send.qp_state = IBV_QPS_RTS;
    send.timeout = 18;
    send.retry_cnt = 7;
    send.rnr_retry = 7;  // 7 means forever
    send.sq_psn = address().first_packet;
    send.max_rd_atomic = 1;
    modify(send,
           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC,
           "RTS");
#else
    (void)theirs;
    kit::todo("task 2, connect");
#endif
  }

  // Task 3. Writes bytes of the outbox (from offset `from`) into the peer's inbox (at offset `to`)
  // and announces them by `value`, sent in network byte order. Blocks while the send queue
  // is full. The outbox must not change until flush(). At most every (sends / 2)-th request may ask
  // for a completion. Bytes outside the outbox or the peer's inbox are an error, too, here or in
  // flush(). Throws std::runtime_error with the status's text if this or an earlier request has
  // failed, after it has taken the completions of all posted sends from the queue.
  void put(std::size_t from, std::size_t to, std::size_t bytes, std::uint32_t value) {
#ifdef SOLUTION
    if (from > outbox_.size() || bytes > outbox_.size() - from || to > theirs_.inbox_bytes ||
        bytes > theirs_.inbox_bytes - to)
      throw std::runtime_error("put: outside of the outbox or the inbox");
    while (posted_ - done_ >= std::uint64_t(limits_.sends)) take();
    throw_if_failed();
    ibv_sge piece{reinterpret_cast<std::uint64_t>(outbox_.data() + from), std::uint32_t(bytes),
                  outbox_region_->lkey};
    ibv_send_wr work{};
    work.sg_list = &piece;
    work.num_sge = bytes > 0 ? 1 : 0;
    work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    work.imm_data = htonl(value);
    work.wr.rdma.remote_addr = theirs_.inbox + to;
    work.wr.rdma.rkey = theirs_.inbox_key;
    post(work, (posted_ + 1) % (std::uint64_t(limits_.sends) / 2) == 0);
#else
    (void)from, (void)to, (void)bytes, (void)value;
    kit::todo("task 3, put");
#endif
  }

  // Task 4. Returns the next value that has arrived, if any; its bytes are in the inbox. Posts a
  // new receive request for the one that the value used up. Does not wait.
  [[nodiscard]] std::optional<std::uint32_t> poll() {
#ifdef SOLUTION
    if (arrived_.empty()) take();
    throw_if_failed();
    if (arrived_.empty()) return std::nullopt;
    const std::uint32_t value = arrived_.front();
    arrived_.pop_front();
    return value;
#else
    kit::todo("task 4, poll");
#endif
  }

  // Task 5. Blocks until all puts have arrived; throws like put. Unsignalled requests do not report
  // their completion, but an empty write (no pieces, no immediate value) posted after them can.
  void flush() {
#ifdef SOLUTION
    if (posted_ == done_) return throw_if_failed();
    while (posted_ - done_ >= std::uint64_t(limits_.sends)) take();
    throw_if_failed();
    ibv_send_wr last{};
    last.opcode = IBV_WR_RDMA_WRITE;
    post(last, true);
    while (posted_ != done_) take();
    throw_if_failed();
#else
    kit::todo("task 5, flush");
#endif
  }

 private:
#ifdef SOLUTION
  static constexpr std::uint64_t receive = ~std::uint64_t{0};  // wr_id of every receive request

  void open(const std::string& name) {
    int count = 0;
    ibv_device** const all = ibv_get_device_list(&count);
    for (int i = 0; i < count && !context_; ++i)
      if (name == ibv_get_device_name(all[i])) context_ = ibv_open_device(all[i]);
    if (all) ibv_free_device_list(all);
    if (!context_) throw std::runtime_error("there is no RDMA device " + name);
  }
  void modify(ibv_qp_attr& attributes, int mask, const char* state) {
    if (const int error = ibv_modify_qp(pair_, &attributes, mask); error != 0)
      fail(std::string("ibv_modify_qp to ") + state, error);
  }
  void post_receive() {
    ibv_recv_wr work{}, *refused = nullptr;
    work.wr_id = receive;
    if (const int error = ibv_post_recv(pair_, &work, &refused); error != 0)
      fail("ibv_post_recv", error);
  }
  void post(ibv_send_wr& work, bool signalled) {
    ibv_send_wr* refused = nullptr;
    work.wr_id = posted_ + 1;  // its completion means that all up to it are done
    if (signalled) work.send_flags |= IBV_SEND_SIGNALED;
    if (const int error = ibv_post_send(pair_, &work, &refused); error != 0)
      fail("ibv_post_send", error);
    ++posted_;
  }
  // Takes completions of both kinds: if a full send queue prevented receiving, two ends that both
  // wait for room would deadlock.
  void take() {
    ibv_wc found[8];
    const int count = ibv_poll_cq(completions_, 8, found);
    if (count < 0) throw std::runtime_error("ibv_poll_cq failed: the completion queue ran over");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& wc = found[i];  // if it failed, only wr_id and status are valid
      if (wc.status != IBV_WC_SUCCESS && failed_.empty())
        failed_ = std::string("rdma: ") + ibv_wc_status_str(wc.status);
      if (wc.wr_id != receive) done_ = wc.wr_id;
      if (wc.wr_id != receive || wc.status != IBV_WC_SUCCESS) continue;
      arrived_.push_back(ntohl(wc.imm_data));
      post_receive();
    }
  }
  // After an error every posted request completes; takes the completions of all sends, then throws.
  void throw_if_failed() {
    if (failed_.empty()) return;
    while (posted_ != done_) take();
    throw std::runtime_error(failed_);
  }
  void give_back() {  // in reverse order of creation
    if (pair_) ibv_destroy_qp(pair_);
    if (completions_) ibv_destroy_cq(completions_);
    if (outbox_region_) ibv_dereg_mr(outbox_region_);
    if (inbox_region_) ibv_dereg_mr(inbox_region_);
    if (domain_) ibv_dealloc_pd(domain_);
    if (context_) ibv_close_device(context_);
  }
#endif

  std::span<std::byte> inbox_, outbox_;
  Limits limits_;
#ifdef SOLUTION
  Address theirs_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_mr *inbox_region_ = nullptr, *outbox_region_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_qp* pair_ = nullptr;
  std::uint64_t posted_ = 0, done_ = 0;  // sends
  std::deque<std::uint32_t> arrived_;
  std::string failed_;
#endif
};

}  // namespace lab11
