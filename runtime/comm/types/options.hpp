// The options of a group, with their defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/comm/types/bootstrap.hpp"
#include "runtime/comm/types/collective.hpp"
#include "runtime/comm/types/settings.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith::comm {

// How collectives on device memory run (runtime/comm/device). Both engines give the same bits.
// automatic uses neither without peer access, kernel if every one of several ranks has its own
// device, and stream otherwise.
enum class CudaEngine : std::uint8_t {
  automatic,
  stream,  // the host enqueues copies and short kernels; streams wait for each other by events
  kernel   // one kernel per collective, which waits for its peers' kernels itself
};
[[nodiscard]] std::string_view name_of(CudaEngine engine);
// Accepts "auto", "stream" (or "a") and "kernel" (or "b"); else throws UsageError.
[[nodiscard]] CudaEngine parse_cuda_engine(std::string_view name);

// How ranks reach each other's memory. automatic: shared memory within a host, TCP between hosts.
enum class Transport : std::uint8_t { automatic, shm, tcp, rdma };
[[nodiscard]] std::string_view name_of(Transport transport);     // automatic: "auto"
[[nodiscard]] Transport parse_transport(std::string_view name);  // else UsageError

struct GroupOptions {
  // Deadline of every wait; milliseconds::max() means none. Must be above 0, else UsageError. It is
  // for ranks that hang: a process that has ended is noticed without it. 30 s suits short jobs,
  // where an early report is worth more than patience. Choose minutes if a rank may be late for a
  // good reason, such as a slow file system or the first use of a library on a GPU: PyTorch's NCCL
  // groups wait for ten minutes.
  std::chrono::milliseconds timeout{30'000};
  Algorithm algorithm = Algorithm::automatic;  // for reductions that support it
  Device device;                               // cpu: host memory only; same kind on all ranks
  CudaEngine engine = CudaEngine::automatic;   // same on all ranks
  BootstrapKind bootstrap = BootstrapKind::automatic;  // how the ranks find each other
  Transport transport = Transport::automatic;          // same on all ranks
  // tcp: an interface ("eth0") or an address of this host. rdma: a device, or several that the
  // ranks take in turn ("mlx5_0,mlx5_1"). Empty: an interface or device that reaches the others.
  std::string interface = {};
  // tcp: number of connections between two ranks, 1 to kLanes (transport/layout.hpp); same on all
  // ranks. More than one helps if the network limits or drops the packets of each connection
  // separately.
  int sockets = 1;
  // tcp: messages carry a CRC32C; a mismatch throws CommError (transport/tcp/stream.hpp).
  // Always on between hosts; this option turns it on within a host, too. Same on all ranks. RDMA
  // adapters have their own checksums.
  bool checksum = false;
  // If k > 0, the ranks from n * k to n * k + k - 1 count as node n, as if on their own host: ranks
  // of different nodes use the network. If 0, the nodes are the actual hosts. Same on all ranks.
  int ranks_per_node = 0;
  // An existing folder for the flight recorder's files, written if the group fails
  // (failure/last_words.hpp). Empty: none are written.
  std::string flight_folder = {};
  // Settings of the program that must be equal; ranks compare them before they connect.
  Settings settings = {};
};

}  // namespace ringsmith::comm
