// Unusual and correct: a put is two requests, the bytes by a plain write and then the value by an
// empty write with immediate (requests of one queue pair are executed in order). Puts are posted
// until half of the send queue's limit is reached; the last one is signalled, and put() waits for
// all of them.
#pragma once

#include <arpa/inet.h>
#include <cstdint>
#include <infiniband/verbs.h>
#include <optional>
#include <queue>
#include <span>
#include <stdexcept>
#include <string>

namespace lab11 {

struct Address {
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;
  std::uint64_t inbox = 0;
  std::uint64_t inbox_bytes = 0;
  std::uint32_t inbox_key = 0;
};
struct Limits {
  int sends = 16;
  int receives = 16;
  int gid_index = 1;
};

class Endpoint {
 public:
  Endpoint(const std::string& device, std::span<std::byte> inbox, std::span<std::byte> outbox,
           Limits limits = {})
      : inbox_(inbox), outbox_(outbox), limits_(limits) {
    int n = 0;
    ibv_device** list = ibv_get_device_list(&n);
    ibv_device* mine = nullptr;
    while (n-- > 0)
      if (std::string(ibv_get_device_name(list[n])) == device) mine = list[n];
    context_ = mine ? ibv_open_device(mine) : nullptr;
    ibv_free_device_list(list);
    if (!context_) throw std::runtime_error(device + ": no such device, or it cannot be opened");
    domain_ = ibv_alloc_pd(context_);
    constexpr int writable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    in_ = domain_ ? ibv_reg_mr(domain_, inbox.data(), inbox.size(), writable) : nullptr;
    out_ = domain_ ? ibv_reg_mr(domain_, outbox.data(), outbox.size(), IBV_ACCESS_LOCAL_WRITE)
                   : nullptr;
    queue_ = ibv_create_cq(context_, 2 * (limits.sends + limits.receives), nullptr, nullptr, 0);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = queue_;
    wanted.recv_cq = queue_;
    wanted.cap = {std::uint32_t(limits.sends), std::uint32_t(limits.receives), 2, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    pair_ = domain_ && queue_ ? ibv_create_qp(domain_, &wanted) : nullptr;
    if (in_ && out_ && pair_) return;
    free_all();
    throw std::runtime_error("something could not be made");
  }
  ~Endpoint() { free_all(); }
  Endpoint(const Endpoint&) = delete;

  [[nodiscard]] Address address() const {
    Address a;
    a.queue_pair = pair_->qp_num;
    a.inbox = std::uint64_t(inbox_.data());
    a.inbox_bytes = in_->length;
    a.inbox_key = in_->rkey;
    check(ibv_query_gid(context_, 1, limits_.gid_index, &a.gid));
    return a;  // packets are counted from 0
  }

  void connect(const Address& theirs) {
    theirs_ = theirs;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr a{};  // for all three steps; the mask selects those of one step
      a.qp_state = state;
      a.port_num = 1;
      a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
      a.path_mtu = IBV_MTU_1024;
      a.dest_qp_num = theirs.queue_pair;
      a.rq_psn = theirs.first_packet;
      a.max_dest_rd_atomic = a.max_rd_atomic = 1;
      a.min_rnr_timer = 12;
      a.ah_attr.is_global = a.ah_attr.port_num = 1;
      a.ah_attr.dlid = theirs.lid;
      a.ah_attr.grh.dgid = theirs.gid;
      a.ah_attr.grh.sgid_index = std::uint8_t(limits_.gid_index);
      a.ah_attr.grh.hop_limit = 64;
      a.timeout = 18;
      a.retry_cnt = a.rnr_retry = 7;
      const int masks[] = {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                               IBV_QP_MAX_QP_RD_ATOMIC};
      check(ibv_modify_qp(pair_, &a, IBV_QP_STATE | masks[state]));
      for (int i = 0; state == IBV_QPS_INIT && i < limits_.receives; ++i) open_door();
    }
  }

  void put(std::size_t from, std::size_t to, std::size_t bytes, std::uint32_t value) {
    tell();
    if (bytes > outbox_.size()) throw std::runtime_error("put: longer than the outbox");
    ibv_sge piece{std::uint64_t(outbox_.data() + from), std::uint32_t(bytes), out_->lkey};
    ibv_send_wr announcement{}, work{}, *refused = nullptr;
    announcement.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    announcement.imm_data = htonl(value);
    announcement.wr_id = work.wr_id = send;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.wr.rdma.remote_addr = theirs_.inbox + to;
    work.wr.rdma.rkey = theirs_.inbox_key;
    work.next = &announcement;
    const bool last = ++puts_ == limits_.sends / 2;
    if (last) announcement.send_flags = IBV_SEND_SIGNALED;
    check(ibv_post_send(pair_, bytes > 0 ? &work : &announcement, &refused));
    posted_ += bytes > 0 ? 2 : 1;
    if (last) wait();
  }

  [[nodiscard]] std::optional<std::uint32_t> poll() {
    look();
    if (came_.empty()) tell();
    if (came_.empty()) return {};
    const std::uint32_t first = came_.front();
    came_.pop();
    return first;
  }

  void flush() {
    tell();
    if (puts_ == 0) return;
    ibv_send_wr nothing{}, *refused = nullptr;
    nothing.opcode = IBV_WR_RDMA_WRITE;
    nothing.send_flags = IBV_SEND_SIGNALED;
    nothing.wr_id = send;
    check(ibv_post_send(pair_, &nothing, &refused));
    ++posted_;
    wait();
  }

 private:
  enum : std::uint64_t { send = 1, receive = 2 };

  static void check(int error) {
    if (error) throw std::runtime_error("verbs: error " + std::to_string(error));
  }
  void open_door() {
    ibv_recv_wr work{}, *refused = nullptr;
    work.wr_id = receive;
    check(ibv_post_recv(pair_, &work, &refused));
  }
  void look() {
    ibv_wc wc{};
    for (int n; (n = ibv_poll_cq(queue_, 1, &wc)) != 0;) {
      if (n < 0) throw std::runtime_error("the completion queue ran over");
      if (wc.status != IBV_WC_SUCCESS) {
        if (wrong_.empty()) wrong_ = ibv_wc_status_str(wc.status);
        if (wc.wr_id == send) ++failed_;
      } else if (wc.wr_id == receive) {
        came_.push(ntohl(wc.imm_data));
        open_door();
      } else {
        puts_ = posted_ = 0;  // the only signalled request of this half
      }
    }
  }
  void wait() {
    while (puts_ > 0 && wrong_.empty()) look();
    tell();
  }
  // The first failed request and all after it complete; those before it may complete silently.
  // Polls until no further failure is found.
  void tell() {
    if (wrong_.empty()) return;
    for (int before = -1; before != failed_;) {
      before = failed_;
      look();
    }
    throw std::runtime_error(wrong_);
  }
  void free_all() {
    if (pair_) ibv_destroy_qp(pair_);
    if (queue_) ibv_destroy_cq(queue_);
    for (ibv_mr* region : {in_, out_})
      if (region) ibv_dereg_mr(region);
    if (domain_) ibv_dealloc_pd(domain_);
    ibv_close_device(context_);
  }

  std::span<std::byte> inbox_, outbox_;
  Limits limits_;
  Address theirs_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_mr *in_ = nullptr, *out_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  int puts_ = 0, posted_ = 0, failed_ = 0;
  std::queue<std::uint32_t> came_;
  std::string wrong_;
};

}  // namespace lab11
