#include <algorithm>
#include <cerrno>
#include <cstring>

#include "labs/kit/verbs/state.hpp"
#include "labs/kit/waits.hpp"

using namespace kit::verbs;

namespace {

constexpr int kPatience = 4000;  // consecutive idle polls, over all ranks, that count as a hang

const char* name_of(ibv_qp_state state) {
  constexpr const char* names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return names[state];
}

std::vector<kit::Wait> waits() {
  Hub& h = hub();
  std::vector<kit::Wait> all;
  for (int r = 0; r < int(h.ranks.size()); ++r) {
    kit::Wait wait{r, "polls, but nothing arrives", {}, h.ranks[std::size_t(r)].done};
    for (const auto& [number, pair] : h.pairs) {
      if (pair->rank != r) continue;
      const auto peer = h.pairs.find(pair->attributes.dest_qp_num);
      wait.what = "polls without progress: queue pair " + std::to_string(number) + " (" +
                  name_of(pair->state) + "), " + std::to_string(pair->sends.size()) +
                  " sends in flight, " + std::to_string(pair->posted - pair->freed) + " of " +
                  std::to_string(pair->cap.max_send_wr) + " places in use, " +
                  std::to_string(pair->receives.size()) + " receives posted";
      if (peer == h.pairs.end()) continue;
      if (!pair->sends.empty() && peer->second->receives.empty())
        wait.what +=
            "; waits for rank " + std::to_string(peer->second->rank) + " to post a receive";
      wait.peers.push_back(peer->second->rank);
    }
    all.push_back(wait);
  }
  return all;
}

}  // namespace

int ibv_modify_qp(ibv_qp* given, ibv_qp_attr* attributes, int mask) {
  auto& pair = *static_cast<Pair*>(given);
  constexpr int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int ready = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int send = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC;
  if (hub().withheld("state")) return ENOMEM;
  const ibv_qp_state from = pair.state, to = attributes->qp_state;
  const std::string step =
      std::string("ibv_modify_qp from ") + name_of(from) + " to " + name_of(to);
  if (!(mask & IBV_QP_STATE))
    return hub().refuse(EINVAL, "ibv_modify_qp: the mask has no IBV_QP_STATE");
  if (to == IBV_QPS_ERR) return hub().flush(pair), 0;
  const int wanted = to == IBV_QPS_INIT ? init : to == IBV_QPS_RTR ? ready : send;
  if (to < IBV_QPS_INIT || to > IBV_QPS_RTS || from != to - 1)
    return hub().refuse(EINVAL, step + ": the order is RESET, INIT, RTR, RTS");
  if ((mask & ~IBV_QP_STATE) != wanted)
    return hub().refuse(EINVAL, step + ": the mask must be " +
                                    std::to_string(wanted | IBV_QP_STATE) + ", but is " +
                                    std::to_string(mask));
  if ((to == IBV_QPS_INIT && attributes->port_num != 1) ||
      (to == IBV_QPS_RTR && (!attributes->ah_attr.is_global || attributes->ah_attr.port_num != 1)))
    return hub().refuse(EINVAL, step + ": the port is 1, and RoCE needs a global route");
  if ((to == IBV_QPS_RTR && attributes->rq_psn >= 1U << 24) ||
      (to == IBV_QPS_RTS && attributes->sq_psn >= 1U << 24))
    return hub().refuse(EINVAL, step + ": the number of a packet has 24 bits");
  if (to == IBV_QPS_INIT) pair.attributes = *attributes;
  if (to == IBV_QPS_RTR) {
    pair.attributes.dest_qp_num = attributes->dest_qp_num;
    pair.attributes.rq_psn = attributes->rq_psn;
    pair.attributes.ah_attr = attributes->ah_attr;
    pair.attributes.path_mtu = attributes->path_mtu;
    pair.attributes.min_rnr_timer = attributes->min_rnr_timer;
  }
  if (to == IBV_QPS_RTS) {
    pair.attributes.sq_psn = attributes->sq_psn;
    pair.attributes.rnr_retry = attributes->rnr_retry;
    const auto& route = pair.attributes.ah_attr.grh;
    hub().attributes[pair.rank] = {pair.attributes.path_mtu,
                                   route.hop_limit,
                                   route.sgid_index,
                                   pair.attributes.min_rnr_timer,
                                   attributes->timeout,
                                   attributes->retry_cnt,
                                   attributes->rnr_retry,
                                   pair.attributes.qp_access_flags,
                                   std::int64_t(pair.receives.size())};
  }
  pair.state = to;
  hub().idle = 0;
  return 0;
}

int ibv_post_send(ibv_qp* given, ibv_send_wr* request, ibv_send_wr** refused) {
  auto& pair = *static_cast<Pair*>(given);
  for (; request; request = request->next) {
    *refused = request;
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR)
      return hub().refuse(
          EINVAL, std::string("ibv_post_send to a queue pair in state ") + name_of(pair.state));
    if (pair.posted - pair.freed >= pair.cap.max_send_wr)
      return hub().refuse(ENOMEM, "ibv_post_send: all " + std::to_string(pair.cap.max_send_wr) +
                                      " places of the send queue are in use");
    if (request->opcode > IBV_WR_RDMA_WRITE_WITH_IMM ||
        request->num_sge > int(pair.cap.max_send_sge))
      return hub().refuse(EINVAL, "ibv_post_send: only RDMA writes of up to max_send_sge pieces");
    SendRequest& kept = pair.sends.emplace_back();
    kept.work = *request;
    kept.pieces.assign(request->sg_list, request->sg_list + request->num_sge);
    if (request->send_flags & IBV_SEND_INLINE) {
      kept.is_inline = true;
      for (const ibv_sge& piece : kept.pieces) {
        const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
        kept.inlined.insert(kept.inlined.end(), from, from + piece.length);
      }
      if (kept.inlined.size() > pair.cap.max_inline_data) {
        pair.sends.pop_back();
        return hub().refuse(EINVAL, "ibv_post_send: more inline than max_inline_data");
      }
    }
    ++pair.posted;
    hub().most_outstanding =
        std::max(hub().most_outstanding, std::int64_t(pair.posted - pair.freed));
    if (pair.state == IBV_QPS_ERR) hub().flush(pair);
  }
  hub().idle = 0;
  return 0;
}

int ibv_post_recv(ibv_qp* given, ibv_recv_wr* request, ibv_recv_wr** refused) {
  auto& pair = *static_cast<Pair*>(given);
  for (; request; request = request->next) {
    *refused = request;
    if (pair.state == IBV_QPS_RESET)
      return hub().refuse(EINVAL, "ibv_post_recv to a queue pair in state RESET");
    if (pair.receives.size() >= pair.cap.max_recv_wr)
      return hub().refuse(ENOMEM, "ibv_post_recv: all " + std::to_string(pair.cap.max_recv_wr) +
                                      " places of the receive queue are in use");
    pair.receives.push_back(*request);
    if (pair.state == IBV_QPS_ERR) hub().flush(pair);
  }
  hub().idle = 0;
  return 0;
}

int ibv_poll_cq(ibv_cq* given, int most, ibv_wc* completions) {
  Hub& h = hub();
  auto& queue = *static_cast<Completions*>(given);
  if (h.withheld("poll")) return -1;
  ++h.turn;
  if (h.progress()) h.idle = 0;
  int found = 0;
  for (; found < most && !queue.waiting.empty() && !queue.overrun; ++found) {
    ibv_wc wc = queue.waiting.front();
    queue.waiting.pop_front();
    const auto pair = h.pairs.find(wc.qp_num);
    if (wc.vendor_err != 0 && pair != h.pairs.end())  // a send frees all places up to its own
      pair->second->freed = std::max(pair->second->freed, std::uint64_t(wc.vendor_err));
    wc.vendor_err = 0;
    completions[found] = wc;
  }
  if (queue.overrun) return -1;
  if (found > 0) return h.idle = 0, found;
  if (++h.idle > kPatience) {
    h.hang = "all poll without progress\n" + kit::describe(waits());
    h.conductor.release();
    std::binary_semaphore for_ever(0);
    for_ever.acquire();
  }
  h.yield();
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "local length error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_WR_FLUSH_ERR:
      return "Work Request Flushed Error";
    case IBV_WC_REM_INV_REQ_ERR:
      return "remote invalid request error";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR retry counter exceeded";
  }
  return "unknown";
}
