#include "runtime/comm/transport/rdma/verbs.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace ringsmith::comm::rdma {

namespace {

// True for addresses such as "::ffff:10.0.0.1", the form of IPv4 addresses in RoCE v2.
bool is_ipv4(const ibv_gid& gid) {
  constexpr std::array<std::uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.raw);
}

// Prefers routable addresses: RoCE v2 over IPv4, RoCE v2 over IPv6, InfiniBand, and last RoCE v1,
// which routers do not forward. RINGSMITH_GID_INDEX overrides the choice.
int rank_of(const ibv_gid_entry& entry) {
  const bool v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
  return v2 && is_ipv4(entry.gid) ? 0 : v2 ? 1 : entry.gid_type == IBV_GID_TYPE_IB ? 2 : 3;
}

void choose_gid(Adapter& adapter) {
  std::array<ibv_gid_entry, 256> entries{};
  const ssize_t n = ibv_query_gid_table(adapter.context.get(), entries.data(), entries.size(), 0);
  std::vector<ibv_gid_entry> ours;
  for (ssize_t i = 0; i < n; ++i)
    if (entries[static_cast<std::size_t>(i)].port_num == adapter.port)
      ours.push_back(entries[static_cast<std::size_t>(i)]);
  std::ranges::stable_sort(ours, {}, rank_of);
  if (const char* index = std::getenv("RINGSMITH_GID_INDEX"); index != nullptr)
    std::erase_if(ours, [&](const auto& e) { return std::to_string(e.gid_index) != index; });
  require(!ours.empty(), "RDMA device " + adapter.name + " has no usable GID" +
                             " (its port has no IP address, or RINGSMITH_GID_INDEX names none): "
                             "see 'ibv_devinfo -v'");
  adapter.gid_index = static_cast<int>(ours.front().gid_index);
  adapter.gid = ours.front().gid;
}

// Returns "", or the reason why the device is unusable.
std::string use(ibv_device* candidate, Adapter& adapter) {
  adapter.name = ibv_get_device_name(candidate);
  adapter.context.reset(ibv_open_device(candidate));
  if (!adapter.context) return std::string("cannot be opened: ") + std::strerror(errno);
  ibv_port_attr port{};
  if (ibv_query_port(adapter.context.get(), adapter.port, &port) != 0)
    return "port 1 does not exist";
  if (port.state != IBV_PORT_ACTIVE)
    return std::string("port 1 is ") + ibv_port_state_str(port.state) + ", not active";
  adapter.domain.reset(ibv_alloc_pd(adapter.context.get()));
  if (!adapter.domain) return std::string("no protection domain: ") + std::strerror(errno);
  adapter.lid = port.lid;
  adapter.mtu = port.active_mtu;
  adapter.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  choose_gid(adapter);
  return {};
}

// Returns the name in the comma-separated list that this rank must use; the ranks take the names in
// turn.
std::string turn(const std::string& wanted, int rank) {
  std::vector<std::string> names;
  std::istringstream in(wanted);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names.empty() ? "" : names[static_cast<std::size_t>(rank) % names.size()];
}

const char* what_to_check(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer's device does not answer: check that its process and host are up, that the "
             "GIDs reach each other (RINGSMITH_GID_INDEX), and UDP port 4791 for RoCE";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer has posted no receive requests: it is stuck, or runs another version";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "the peer's device refused the address or the key: its memory there has been "
             "deregistered, or it runs another version";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return "the local bytes are outside registered memory: a bug in ringsmith";
    case IBV_WC_WR_FLUSH_ERR:
      return "it was dropped because the connection had already failed, here or at the peer";
    default:
      return "see the kernel's log for the device";
  }
}

const char* name_of(ibv_wc_opcode opcode) {
  return opcode == IBV_WC_RECV_RDMA_WITH_IMM || opcode == IBV_WC_RECV ? "receive" : "RDMA write";
}

}  // namespace

MemoryRegion register_memory(const Adapter& adapter, std::byte* memory, std::size_t bytes,
                             int access) {
  MemoryRegion region(ibv_reg_mr(adapter.domain.get(), memory, bytes, access));
  if (!region)
    fail("registering " + std::to_string(bytes >> 10) +
         " KiB of memory with the device (is 'ulimit -l' unlimited?)");
  return region;
}

std::string Adapter::str() const {
  return name + " port " + std::to_string(port) + ", gid " + std::to_string(gid_index) + ", mtu " +
         std::to_string(bytes_of(mtu));
}

Adapter open_adapter(const std::string& wanted, int rank) {
  const std::string name = turn(wanted, rank);
  int n = 0;
  const std::unique_ptr<ibv_device*, Destroy<ibv_free_device_list>> all(ibv_get_device_list(&n));
  std::string found;
  for (int i = 0; all && i < n; ++i) {
    ibv_device* const candidate = all.get()[i];
    if (!name.empty() && name != ibv_get_device_name(candidate)) {
      found += std::string(found.empty() ? "" : "; ") + ibv_get_device_name(candidate);
      continue;
    }
    Adapter adapter;
    const std::string trouble = use(candidate, adapter);
    if (trouble.empty()) return adapter;
    found += (found.empty() ? "" : "; ") + adapter.name + " " + trouble;
  }
  throw UsageError("--transport rdma: " +
                   (name.empty() ? "no RDMA device with an active port"
                                 : "no RDMA device '" + name + "' that could be used") +
                   " (" + (found.empty() ? "this host has none" : "found: " + found) +
                   "); use --transport tcp, or see 'ibv_devinfo'");
}

std::string explain(const ibv_wc& completion) {
  return std::string(name_of(completion.opcode)) +
         " failed: " + ibv_wc_status_str(completion.status) + " (status " +
         std::to_string(completion.status) + "); " + what_to_check(completion.status);
}

}  // namespace ringsmith::comm::rdma
