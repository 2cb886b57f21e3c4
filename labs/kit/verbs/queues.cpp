// How the simulated device executes requests.
#include <cstring>

#include "labs/kit/verbs/state.hpp"

namespace kit::verbs {
namespace {

constexpr int kAfterNak = 20;  // turns before a retry

// Returns the domain's region with this key and these rights that contains all bytes, or null.
Region* region_of(std::uint32_t key, bool remote, ibv_pd* domain, std::uint64_t at,
                  std::uint64_t bytes, int rights) {
  for (const auto& [lkey, region] : hub().regions) {
    if ((remote ? region->rkey : region->lkey) != key || region->pd != domain) continue;
    const auto first = reinterpret_cast<std::uint64_t>(region->addr);
    const bool inside =
        at >= first && bytes <= region->length && at - first <= region->length - bytes;
    return inside && (region->access & rights) == rights ? region : nullptr;
  }
  return nullptr;
}

// True if the route leads to the peer's address with the same GID index.
bool reaches(const Pair& pair, const Pair& peer) {
  const auto& route = pair.attributes.ah_attr.grh;
  const ibv_gid there = gid_of(peer.rank, route.sgid_index);
  return route.hop_limit > 0 && std::memcmp(&there, &route.dgid, sizeof there) == 0;
}

}  // namespace

void Hub::complete(Pair& pair, bool send, ibv_wc wc, std::uint64_t place) {
  auto& queue = *static_cast<Completions*>(send ? pair.send_cq : pair.recv_cq);
  wc.qp_num = pair.qp_num;
  // In a failed completion, opcode, byte_len and imm_data are undefined, so they get values that no
  // caller expects.
  if (wc.status != IBV_WC_SUCCESS) wc.opcode = ibv_wc_opcode(0x5a), wc.byte_len = wc.imm_data = ~0U;
  if (send) {
    ++send_completions;
    wc.vendor_err = std::uint32_t(place);  // set to 0 by ibv_poll_cq
  }
  if (queue.overrun) return;
  if (int(queue.waiting.size()) == queue.cqe) {
    refuse(0, "the completion queue of queue pair " + std::to_string(pair.qp_num) + " (of rank " +
                  std::to_string(pair.rank) + ") has " + std::to_string(queue.cqe) +
                  " entries and ran over");
    queue.overrun = true;
    pair.state = IBV_QPS_ERR;
    return;
  }
  queue.waiting.push_back(wc);
}

void Hub::flush(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (; !pair.sends.empty(); pair.sends.pop_front()) {
    ibv_wc wc{};
    wc.wr_id = pair.sends.front().work.wr_id;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    complete(pair, true, wc, pair.posted - pair.sends.size() + 1);
  }
  for (; !pair.receives.empty(); pair.receives.pop_front()) {
    ibv_wc wc{};
    wc.wr_id = pair.receives.front().wr_id;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    complete(pair, false, wc);
  }
}

// Fails the first request, signalled or not, and flushes the rest.
void Hub::fail(Pair& pair, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = pair.sends.front().work.wr_id;
  wc.status = status;
  complete(pair, true, wc, pair.posted - pair.sends.size() + 1);
  pair.sends.pop_front();
  flush(pair);
}

// Executes the first request of a pair, if that is possible now. Returns true on progress.
bool Hub::carry_out(Pair& pair) {
  if (pair.state != IBV_QPS_RTS || pair.sends.empty() || turn < pair.not_before) return false;
  SendRequest& request = pair.sends.front();
  const auto found = pairs.find(pair.attributes.dest_qp_num);
  Pair* peer = found == pairs.end() ? nullptr : found->second;
  const bool answers = peer && peer->state >= IBV_QPS_RTR && peer->state <= IBV_QPS_RTS &&
                       peer->attributes.dest_qp_num == pair.qp_num &&
                       peer->attributes.rq_psn == pair.attributes.sq_psn && reaches(pair, *peer);
  if (!answers) {
    pair.not_before = turn + kAfterNak;
    if (++pair.naks > 8) fail(pair, IBV_WC_RETRY_EXC_ERR);
    return pair.state == IBV_QPS_ERR;
  }
  std::vector<std::byte> data = request.inlined;
  for (const ibv_sge& piece : request.pieces) {
    if (request.is_inline) break;
    if (!region_of(piece.lkey, false, pair.pd, piece.addr, piece.length, 0))
      return fail(pair, IBV_WC_LOC_PROT_ERR), true;
    const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
    data.insert(data.end(), from, from + piece.length);
  }
  const bool immediate = request.work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const auto [address, key] = request.work.wr.rdma;
  const bool allowed =
      data.empty() ||
      ((peer->attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) &&
       region_of(key, true, peer->pd, address, data.size(), IBV_ACCESS_REMOTE_WRITE));
  if (!allowed) {
    fail(pair, IBV_WC_REM_ACCESS_ERR);
    flush(*peer);
    return true;
  }
  if (immediate && peer->receives.empty()) {  // receiver not ready
    pair.not_before = turn + kAfterNak;
    if (pair.attributes.rnr_retry == 7 || ++pair.naks <= int(pair.attributes.rnr_retry))
      return false;
    return fail(pair, IBV_WC_RNR_RETRY_EXC_ERR), true;
  }
  if (!data.empty()) std::memcpy(reinterpret_cast<void*>(address), data.data(), data.size());
  if (immediate) {
    ibv_wc wc{};
    wc.wr_id = peer->receives.front().wr_id;
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.byte_len = std::uint32_t(data.size());
    wc.imm_data = request.work.imm_data;
    wc.wc_flags = IBV_WC_WITH_IMM;
    peer->receives.pop_front();
    immediates.push_back(std::int64_t(request.work.imm_data));
    complete(*peer, false, wc);
  }
  pair.naks = 0;
  const std::uint64_t place = pair.posted - pair.sends.size() + 1;
  if (pair.signal_all || (request.work.send_flags & IBV_SEND_SIGNALED)) {
    ibv_wc wc{};
    wc.wr_id = request.work.wr_id;
    wc.opcode = IBV_WC_RDMA_WRITE;
    complete(pair, true, wc, place);
  }
  pair.sends.pop_front();
  return true;
}

// Executes at most one request, chosen by the seed; sometimes none, to simulate a slow link.
bool Hub::progress() {
  std::vector<Pair*> busy;
  for (const auto& [number, pair] : pairs)
    if (!pair->sends.empty()) busy.push_back(pair);
  if (busy.empty() || random() % 3 == 0) return false;
  return carry_out(*busy[random() % busy.size()]);
}

}  // namespace kit::verbs
