#include "labs/kit/verbs/device.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "labs/kit/driver.hpp"
#include "labs/kit/verbs/state.hpp"
#include "labs/kit/waits.hpp"

namespace kit::verbs {

Hub& hub() {
  static Hub* const the_hub = new Hub;  // never freed, because hanging ranks use it to the end
  return *the_hub;
}

int Hub::refuse(int error, const std::string& why) {
  trouble += "rank " + std::to_string(current) + ": " + why + "\n";
  errno = error;
  return error;
}

bool Hub::withheld(const char* kind) {
  if (missing != kind || missing_after-- > 0) return false;
  errno = ENOMEM;
  missing.clear();
  return true;
}

void withhold(const std::string& kind, int after) {
  hub().missing = kind;
  hub().missing_after = after;
}

// Index 0 is link-local (RoCE v1), and index 1 is routable (v2). A sender reaches only the peer's
// GID with the same index.
ibv_gid gid_of(int rank, int index) {
  ibv_gid gid{};
  if (index == 0)
    gid.raw[0] = 0xfe, gid.raw[1] = 0x80;
  else
    gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[15] = std::uint8_t(1 + rank);
  return gid;
}

// Runs another rank, drawn at random from those not done, until the caller's next turn.
void Hub::yield() {
  const int mine = current;
  std::vector<int> others;
  for (int r = 0; r < int(ranks.size()); ++r)
    if (!ranks[std::size_t(r)].done && r != mine) others.push_back(r);
  if (others.empty()) return;
  current = others[random() % others.size()];
  ranks[std::size_t(current)].wake.release();
  ranks[std::size_t(mine)].wake.acquire();
}

void run(int count, std::uint64_t seed, const std::function<void(int)>& body) {
  Hub& h = hub();
  h.random.seed(seed);
  h.ranks.resize(std::size_t(count));
  for (int r = 0; r < count; ++r)
    h.ranks[std::size_t(r)].thread = std::thread([&h, &body, r] {
      Rank& self = h.ranks[std::size_t(r)];
      self.wake.acquire();
      try {
        body(r);
      } catch (...) {
        self.failure = std::current_exception();
      }
      self.done = true;
      for (int next = 0; next < int(h.ranks.size()); ++next)
        if (!h.ranks[std::size_t(next)].done) {
          h.current = next;
          h.ranks[std::size_t(next)].wake.release();
          return;
        }
      h.conductor.release();
    });
  h.current = 0;
  h.ranks[0].wake.release();
  h.conductor.acquire();
  for (Rank& rank : h.ranks) h.hang.empty() ? rank.thread.join() : rank.thread.detach();
  for (Rank& rank : h.ranks)
    if (rank.failure) std::rethrow_exception(rank.failure);
  if (!h.hang.empty()) throw Hang{h.hang};
}

void stand_still(int turns) {
  for (int i = 0; i < turns; ++i) {
    ++hub().turn;
    hub().progress();
    hub().yield();
  }
}

std::string last_trouble() {
  const std::string& all = hub().trouble;
  if (all.empty()) return "";
  const std::size_t at = all.size() < 2 ? std::string::npos : all.rfind('\n', all.size() - 2);
  return all.substr(at == std::string::npos ? 0 : at + 1,
                    all.size() - (at == std::string::npos ? 0 : at + 1) - 1);
}

void observe(Observation& out) {
  std::string live;
  for (const auto& [kind, number] : hub().live)
    if (number != 0) live += std::to_string(number) + " " + kind + " ";
  out.put("live", live);
  out.put("unread", hub().unread);
  out.put("send_completions", hub().send_completions);
  out.put("most_outstanding", hub().most_outstanding);
  out.put("rights", hub().rights);
  out.put("region_bytes", hub().lengths);
  for (const auto& [rank, values] : hub().attributes)
    out.put("attributes." + std::to_string(rank), values);
  out.put("opened", hub().opened);
  out.put("immediates", hub().immediates);
  out.put("trouble", hub().trouble);
}

}  // namespace kit::verbs

using namespace kit::verbs;

namespace {

ibv_device devices[2] = {{"other0"}, {"sim0"}};

int give_back(const char* kind) {
  --hub().live[kind];
  return 0;
}

}  // namespace

ibv_device** ibv_get_device_list(int* count) {
  ++hub().live["device list"];
  if (count) *count = 2;
  return new ibv_device* [3] { &devices[0], &devices[1], nullptr };
}
void ibv_free_device_list(ibv_device** list) {
  give_back("device list");
  delete[] list;
}
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  if (hub().withheld("context")) return nullptr;
  hub().opened = device->name;
  ++hub().live["context"];
  auto* context = new Context;
  context->device = device;
  context->rank = hub().current;
  return context;
}
int ibv_close_device(ibv_context* given) {
  auto* context = static_cast<Context*>(given);
  if (context->users > 0)
    return hub().refuse(EBUSY, "ibv_close_device: " + std::to_string(context->users) +
                                   " of its objects still exist");
  delete context;
  return give_back("context");
}
int ibv_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  if (port != 1) return hub().refuse(EINVAL, "ibv_query_port: the device has port 1 only");
  *attributes = {};
  const bool up = context->device == &devices[1];
  attributes->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->max_mtu = attributes->active_mtu = IBV_MTU_1024;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  if (port != 1 || index < 0 || index > 1) {
    hub().refuse(EINVAL, "ibv_query_gid: no such GID");
    return -1;  // not an errno, unlike the other calls; the same as in libibverbs
  }
  *gid = gid_of(static_cast<Context*>(context)->rank, index);
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (hub().withheld("protection domain")) return nullptr;
  ++hub().live["protection domain"];
  ++static_cast<Context*>(context)->users;
  auto* domain = new Domain;
  domain->context = context;
  return domain;
}
int ibv_dealloc_pd(ibv_pd* given) {
  auto* domain = static_cast<Domain*>(given);
  if (domain->users > 0)
    return hub().refuse(
        EBUSY, "ibv_dealloc_pd: " + std::to_string(domain->users) + " of its objects still exist");
  --static_cast<Context*>(domain->context)->users;
  delete domain;
  return give_back("protection domain");
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* memory, std::size_t bytes, int access) {
  if ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
    hub().refuse(EINVAL, "ibv_reg_mr: remote write needs local write");
    return nullptr;
  }
  if (hub().withheld("memory region")) return nullptr;
  ++hub().live["memory region"];
  ++static_cast<Domain*>(domain)->users;
  auto* region = new Region;
  const std::uint32_t key = hub().next_key += 0x111;
  static_cast<ibv_mr&>(*region) = {domain->context, domain, memory, bytes, key, key + 7};
  region->access = access;
  hub().rights.push_back(access);
  hub().lengths.push_back(std::int64_t(bytes));
  hub().regions[key] = region;
  return region;
}
int ibv_dereg_mr(ibv_mr* given) {
  auto* region = static_cast<Region*>(given);
  hub().regions.erase(region->lkey);
  --static_cast<Domain*>(region->pd)->users;
  delete region;
  return give_back("memory region");
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel*,
                      int vector) {
  if (entries < 1 || vector != 0) {
    hub().refuse(EINVAL, "ibv_create_cq: " + std::to_string(entries) + " entries, vector " +
                             std::to_string(vector) + ": the device has vector 0 only");
    return nullptr;
  }
  if (hub().withheld("completion queue")) return nullptr;
  ++hub().live["completion queue"];
  ++static_cast<Context*>(context)->users;
  auto* queue = new Completions;
  queue->context = context;
  queue->cq_context = user;
  queue->cqe = entries;
  return queue;
}
int ibv_destroy_cq(ibv_cq* given) {
  auto* queue = static_cast<Completions*>(given);
  if (queue->users > 0) return hub().refuse(EBUSY, "ibv_destroy_cq: a queue pair still uses it");
  for (const ibv_wc& wc : queue->waiting) hub().unread += wc.vendor_err != 0;  // counts sends
  --static_cast<Context*>(queue->context)->users;
  delete queue;
  return give_back("completion queue");
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  const bool complete = wanted->send_cq && wanted->recv_cq && wanted->qp_type == IBV_QPT_RC &&
                        wanted->cap.max_send_wr > 0 && wanted->cap.max_send_wr <= 1024 &&
                        wanted->cap.max_recv_wr <= 1024 && wanted->cap.max_inline_data <= 1024;
  if (!complete) {
    hub().refuse(
        EINVAL,
        "ibv_create_qp: it needs two completion queues, the type RC, 1 to 1024 requests, and up to "
        "1024 bytes inline");
    return nullptr;
  }
  if (hub().withheld("queue pair")) return nullptr;
  ++hub().live["queue pair"];
  ++static_cast<Domain*>(domain)->users;
  auto* pair = new Pair;
  pair->context = domain->context;
  pair->qp_context = wanted->qp_context;
  pair->pd = domain;
  pair->send_cq = wanted->send_cq;
  pair->recv_cq = wanted->recv_cq;
  pair->qp_num = hub().next_number += 2;
  pair->state = IBV_QPS_RESET;
  pair->qp_type = wanted->qp_type;
  pair->rank = static_cast<Context*>(domain->context)->rank;
  pair->cap = wanted->cap;
  pair->signal_all = wanted->sq_sig_all != 0;
  for (ibv_cq* queue : {pair->send_cq, pair->recv_cq}) ++static_cast<Completions*>(queue)->users;
  hub().pairs[pair->qp_num] = pair;
  return pair;
}
int ibv_destroy_qp(ibv_qp* given) {
  auto* pair = static_cast<Pair*>(given);
  for (ibv_cq* queue : {pair->send_cq, pair->recv_cq}) --static_cast<Completions*>(queue)->users;
  --static_cast<Domain*>(pair->pd)->users;
  hub().pairs.erase(pair->qp_num);
  delete pair;
  return give_back("queue pair");
}
