// Unusual and correct: two completion queues, so that the queue tells the kind of a completion;
// objects that free themselves; receives reposted in chains; a send queue used as two halves, each
// refilled only when its previous requests have completed.
#pragma once

#include <arpa/inet.h>
#include <cstdint>
#include <deque>
#include <infiniband/verbs.h>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

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

template <auto give_back>
struct GiveBack {
  template <class T>
  void operator()(T* object) const {
    give_back(object);
  }
};
template <class T, auto give_back>
using Owned = std::unique_ptr<T, GiveBack<give_back>>;

template <class T>
T* must(T* object, const char* call) {
  if (!object) throw std::runtime_error(std::string(call) + " failed");
  return object;
}
inline void must_be_0(int error, const char* call) {
  if (error != 0)
    throw std::runtime_error(std::string(call) + " failed with " + std::to_string(error));
}

class Endpoint {
 public:
  Endpoint(const std::string& device, std::span<std::byte> inbox, std::span<std::byte> outbox,
           Limits limits = {})
      : inbox_(inbox), outbox_(outbox), limits_(limits) {
    const Owned<ibv_device*, ibv_free_device_list> list(ibv_get_device_list(nullptr));
    for (ibv_device** each = list.get(); each && *each; ++each)
      if (device == ibv_get_device_name(*each)) context_.reset(ibv_open_device(*each));
    must(context_.get(), ("opening the device " + device).c_str());
    domain_.reset(must(ibv_alloc_pd(context_.get()), "ibv_alloc_pd"));
    in_.reset(must(ibv_reg_mr(domain_.get(), inbox.data(), inbox.size(),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                   "ibv_reg_mr"));
    out_.reset(must(ibv_reg_mr(domain_.get(), outbox.data(), outbox.size(), 0), "ibv_reg_mr"));
    sent_.reset(
        must(ibv_create_cq(context_.get(), limits.sends, nullptr, nullptr, 0), "ibv_create_cq"));
    came_.reset(
        must(ibv_create_cq(context_.get(), limits.receives, nullptr, nullptr, 0), "ibv_create_cq"));
    ibv_qp_init_attr wanted{};
    wanted.send_cq = sent_.get();
    wanted.recv_cq = came_.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = std::uint32_t(limits.sends);
    wanted.cap.max_recv_wr = std::uint32_t(limits.receives);
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
    pair_.reset(must(ibv_create_qp(domain_.get(), &wanted), "ibv_create_qp"));
  }

  [[nodiscard]] Address address() const {
    Address mine{pair_->qp_num, 0x123456, {}, 0, reinterpret_cast<std::uint64_t>(inbox_.data()),
                 inbox_.size(), in_->rkey};
    must_be_0(ibv_query_gid(context_.get(), 1, limits_.gid_index, &mine.gid), "ibv_query_gid");
    return mine;
  }

  void connect(const Address& theirs) {
    theirs_ = theirs;
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    change(a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    replace(limits_.receives);
    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = theirs.queue_pair;
    a.rq_psn = theirs.first_packet;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = 1;
    a.ah_attr.dlid = theirs.lid;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh = {theirs.gid, 0, std::uint8_t(limits_.gid_index), 64, 0};
    change(a, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 18;
    a.retry_cnt = a.rnr_retry = 7;
    a.sq_psn = address().first_packet;
    a.max_rd_atomic = 1;
    change(a, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                  IBV_QP_MAX_QP_RD_ATOMIC);
  }

  void put(std::size_t from, std::size_t to, std::size_t bytes, std::uint32_t value) {
    if (bytes > outbox_.size()) throw std::runtime_error("put: longer than the outbox");
    ibv_sge piece{reinterpret_cast<std::uint64_t>(outbox_.data()) + from, std::uint32_t(bytes),
                  out_->lkey};
    ibv_send_wr work{};
    work.sg_list = &piece;
    work.num_sge = bytes ? 1 : 0;
    work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    work.imm_data = htonl(value);
    work.wr.rdma = {theirs_.inbox + to, theirs_.inbox_key};
    post(work, in_half_ + 1 == half());
  }

  [[nodiscard]] std::optional<std::uint32_t> poll() {
    collect();
    if (values_.empty()) complain();
    if (values_.empty()) return std::nullopt;
    const std::uint32_t value = values_.front();
    values_.pop_front();
    return value;
  }

  void flush() {
    complain();
    if (in_half_ > 0) {
      ibv_send_wr last{};
      last.opcode = IBV_WR_RDMA_WRITE;
      post(last, true);
    }
    while (!halves_.empty()) collect();
    complain();
  }

 private:
  int half() const { return limits_.sends / 2; }
  void change(ibv_qp_attr& attributes, int mask) {
    must_be_0(ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE | mask), "ibv_modify_qp");
  }
  void replace(int count) {
    std::vector<ibv_recv_wr> chain{std::size_t(count)};
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) chain[i].next = &chain[i + 1];
    ibv_recv_wr* refused = nullptr;
    if (count > 0) must_be_0(ibv_post_recv(pair_.get(), chain.data(), &refused), "ibv_post_recv");
  }
  // A half is `half` requests, or fewer if flush ends it; the last one is signalled. At most one
  // half is pending while the other is being filled.
  void post(ibv_send_wr& work, bool signalled) {
    while (halves_.size() > 1 ||
           (!halves_.empty() && in_half_ == 0 && halves_.front() + half() > limits_.sends))
      collect();
    complain();
    if (signalled) work.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    must_be_0(ibv_post_send(pair_.get(), &work, &refused), "ibv_post_send");
    ++in_half_;
    ++outstanding_;
    if (!signalled) return;
    halves_.push_back(in_half_);
    in_half_ = 0;
  }
  void collect() {
    std::vector<ibv_wc> found(std::size_t(limits_.sends + limits_.receives));
    const int sends = ibv_poll_cq(sent_.get(), limits_.sends, found.data());
    if (sends < 0) throw std::runtime_error("the completion queue of sends is broken");
    for (int i = 0; i < sends; ++i) {
      if (found[std::size_t(i)].status != IBV_WC_SUCCESS) {
        if (error_.empty()) error_ = ibv_wc_status_str(found[std::size_t(i)].status);
        ++failures_;
        continue;
      }
      outstanding_ -= halves_.front();
      halves_.pop_front();
    }
    if (!error_.empty()) halves_.clear();
    const int receives = ibv_poll_cq(came_.get(), limits_.receives, found.data());
    if (receives < 0) throw std::runtime_error("the completion queue of receives is broken");
    int used = 0;
    for (int i = 0; i < receives; ++i) {
      const ibv_wc& wc = found[std::size_t(i)];
      if (wc.status == IBV_WC_SUCCESS) {
        values_.push_back(ntohl(wc.imm_data));
        ++used;
      } else if (error_.empty()) {
        receive_error_ = ibv_wc_status_str(wc.status);
      }
    }
    if (error_.empty() && receive_error_.empty()) replace(used);
  }
  // After an error the device flushes all requests together, so a few more polls find the rest.
  void complain() {
    if (error_.empty() && receive_error_.empty()) return;
    for (int i = 0; i < 3; ++i) collect();
    throw std::runtime_error(error_.empty() ? receive_error_ : error_);
  }

  std::span<std::byte> inbox_, outbox_;
  Limits limits_;
  Address theirs_;
  Owned<ibv_context, ibv_close_device> context_;
  Owned<ibv_pd, ibv_dealloc_pd> domain_;
  Owned<ibv_mr, ibv_dereg_mr> in_, out_;
  Owned<ibv_cq, ibv_destroy_cq> sent_, came_;
  Owned<ibv_qp, ibv_destroy_qp> pair_;
  std::deque<int> halves_;  // requests in each half that is in flight
  int in_half_ = 0, outstanding_ = 0, failures_ = 0;
  std::deque<std::uint32_t> values_;
  std::string error_, receive_error_;
};

}  // namespace lab11
