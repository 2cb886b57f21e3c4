// The parts of libibverbs that the transport uses: objects that free themselves, a rank's device
// with the address by which peers reach it, and explanations of failed completions.
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

// An object must be destroyed before the objects that it was made from.
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
// version of the protocol. The GID at index 0 often has the wrong version, so all are considered.
struct Adapter {
  Context context;
  ProtectionDomain domain;
  std::string name;
  std::uint8_t port = 1;
  int gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;  // InfiniBand address; 0 on Ethernet
  ibv_mtu mtu = IBV_MTU_1024;
  bool ethernet = false;

  [[nodiscard]] std::string str() const;  // "mlx5_0 port 1, gid 3, mtu 4096"
};

// Opens an adapter. `wanted`: "mlx5_0", or several ("rxe0,rxe1") that the ranks take in turn;
// empty: any device with an active port. Throws UsageError with the devices found and why they are
// unusable.
[[nodiscard]] Adapter open_adapter(const std::string& wanted, int rank);

// `access` combines IBV_ACCESS_... flags. Throws CommError if the device refuses the memory.
[[nodiscard]] MemoryRegion register_memory(const Adapter& adapter, std::byte* memory,
                                           std::size_t bytes, int access);

[[nodiscard]] inline int bytes_of(ibv_mtu mtu) { return 128 << static_cast<int>(mtu); }

// Returns libibverbs' status of a failed completion and a remedy: "RDMA write failed: transport
// retry counter exceeded (status 12); the peer's device does not answer: ..."
[[nodiscard]] std::string explain(const ibv_wc& completion);

}  // namespace ringsmith::comm::rdma
