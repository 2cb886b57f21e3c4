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

// How collectives on device memory are run (runtime/comm/device). Both engines give the same bits.
// automatic: kernel if every rank has its own device and reaches the others' devices, else stream.
enum class CudaEngine : std::uint8_t {
  automatic,
  stream,  // the host enqueues copies and short kernels; streams wait for each other by events
  kernel   // one kernel per collective, which waits for its peers' kernels itself
};
[[nodiscard]] std::string_view name_of(CudaEngine engine);
// "auto", "stream" or "kernel", or "a" or "b", their names in earlier versions; else UsageError.
[[nodiscard]] CudaEngine parse_cuda_engine(std::string_view name);

// How ranks reach each other's memory. automatic: shared memory within a host, TCP between hosts.
enum class Transport : std::uint8_t { automatic, shm, tcp, rdma };
[[nodiscard]] std::string_view name_of(Transport transport);     // automatic: "auto"
[[nodiscard]] Transport parse_transport(std::string_view name);  // else UsageError

struct GroupOptions {
  // Deadline of every wait; milliseconds::max() for none. UsageError unless it is above 0.
  std::chrono::milliseconds timeout{30'000};
  Algorithm algorithm = Algorithm::automatic;  // of the reductions that have it
  Device device;                               // cpu: host memory only; same kind on all ranks
  CudaEngine engine = CudaEngine::automatic;   // same on all ranks
  BootstrapKind bootstrap = BootstrapKind::automatic;  // how the ranks find each other
  Transport transport = Transport::automatic;          // same on all ranks
  // tcp: "eth0" or an address of this host; rdma: a device, or several that the ranks take in turn
  // ("mlx5_0,mlx5_1"); empty: an interface or device that reaches the others.
  std::string interface = {};
  // tcp: connections between two ranks, 1 to kLanes (transport/layout.hpp); same on all ranks. Use
  // more than one if the network limits the rate, or loses packets, of each connection separately.
  int sockets = 1;
  // tcp: messages carry a CRC32C, and bytes that fail it cause a CommError instead of a wrong sum
  // (transport/tcp/stream.hpp). Always on between hosts; this option turns it on within a host,
  // where no adapter touches the bytes. Same on all ranks. RDMA adapters have their own checksums.
  bool checksum = false;
  // If k > 0, ranks n k to n k + k - 1 count as node n, as if they had their own host: TCP between
  // nodes, shared memory within. 0: nodes are the actual hosts. Same on all ranks.
  int ranks_per_node = 0;
  // An existing folder for the flight recorder's files (failure/last_words.hpp) of a group that
  // fails; empty: they are not written.
  std::string flight_folder = {};
  // The program's settings, which the ranks compare before they connect.
  Settings settings = {};
};

}  // namespace ringsmith::comm
