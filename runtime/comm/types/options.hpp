// How a group is made: what its creator may choose, with what happens otherwise.
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

// How collectives on device memory are run (runtime/comm/device). Both give the same bits.
// automatic: b where every rank has its own device and reaches the others', else a.
enum class CudaEngine : std::uint8_t {
  automatic,
  a,  // the host enqueues copies and short kernels, streams wait for each other by events
  b   // one kernel per collective, which waits for its peers' kernels itself
};
[[nodiscard]] std::string_view name_of(CudaEngine engine);
CudaEngine parse_cuda_engine(std::string_view name);  // "auto", "a", "b"; else UsageError

// How ranks reach each other's memory. automatic: shared memory within a host, TCP between hosts.
enum class Transport : std::uint8_t { automatic, shm, tcp, rdma };
[[nodiscard]] std::string_view name_of(Transport transport);     // automatic: "auto"
[[nodiscard]] Transport parse_transport(std::string_view name);  // UsageError: the choices

struct GroupOptions {
  // Deadline of every wait; milliseconds::max(): without a limit. UsageError unless above 0.
  std::chrono::milliseconds timeout{30'000};
  Algorithm algorithm = Algorithm::automatic;  // of all_reduce, and of others that have it
  Device device;                               // of this rank; cpu: host memory only. All alike
  CudaEngine engine = CudaEngine::automatic;   // all ranks alike
  BootstrapKind bootstrap = BootstrapKind::automatic;  // how the ranks find each other
  Transport transport = Transport::automatic;          // all ranks alike
  // tcp: "eth0" or an address of this host; rdma: a device, or several that the ranks take in turn
  // ("mlx5_0,mlx5_1"); empty: one that reaches the others.
  std::string interface = {};
  // tcp: connections between two ranks, 1 to kLanes (control.hpp); all ranks alike. More than one
  // where the network holds down, or loses packets of, each connection by itself.
  int sockets = 1;
  // tcp: what is sent carries a CRC32C, and bytes that fail it are a CommError instead of a wrong
  // sum (transport/tcp/stream.hpp): between hosts always, within a host, where no adapter touches
  // the bytes, only if this is set. All ranks alike. RDMA's adapters do it themselves.
  bool checksum = false;
  // Ranks r k to r k + k - 1 count as node r, as if that were a host: TCP between them, shared
  // memory within. 0: nodes are hosts, as they are found. All ranks alike.
  int ranks_per_node = 0;
  // An existing folder for the flight recorder's files
  // (failure/last_words.hpp) of a group that fails; empty: they are not
  // written.
  std::string flight_folder = {};
  // The program's settings, which the ranks compare when they meet, before they connect.
  Settings settings = {};
};

}  // namespace ringsmith::comm
