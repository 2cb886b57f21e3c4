// Which RDMA device a rank uses, and by which of its addresses the others reach it.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/comm/transport/rdma/verbs.hpp"

namespace ringsmith::comm::rdma {

// A port of a device. On Ethernet (RoCE) a peer is addressed by a GID, and each GID belongs to one
// version of the protocol: index 0 is often the wrong one, so they are all looked at.
struct Device {
  Context context;
  ProtectionDomain domain;
  std::string name;
  std::uint8_t port = 1;
  int gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;  // InfiniBand's own address; 0 on Ethernet
  ibv_mtu mtu = IBV_MTU_1024;
  bool ethernet = false;

  [[nodiscard]] std::string str() const;  // "mlx5_0 port 1, gid 3, mtu 4096"
};

// `wanted`: "mlx5_0", or several ("rxe0,rxe1") that the ranks take in turn; empty: any with an
// active port. UsageError with what was found and why it does not do.
[[nodiscard]] Device open_device(const std::string& wanted, int rank);

// access: IBV_ACCESS_... CommError if the device does not take the memory.
[[nodiscard]] MemoryRegion register_memory(const Device& device, std::byte* memory,
                                           std::size_t bytes, int access);

// Bytes.
[[nodiscard]] inline int bytes_of(ibv_mtu mtu) { return 128 << static_cast<int>(mtu); }

}  // namespace ringsmith::comm::rdma
