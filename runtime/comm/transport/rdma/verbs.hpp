// libibverbs as the wires use it: objects that free themselves, the device of a rank and the
// address by which others reach it, and what a failed completion means.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <infiniband/verbs.h>
#include <memory>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::rdma {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};

// An object must go before those that it was made from.
using Context = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;

[[noreturn]] inline void fail(const std::string& what, int error = errno) {
  throw_errno("rdma: " + what, error);
}

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

// libibverbs' status of a failed completion, and what to look at: "RDMA write failed: transport
// retry counter exceeded (12); check ..."
[[nodiscard]] std::string explain(const ibv_wc& completion);

}  // namespace ringsmith::comm::rdma
