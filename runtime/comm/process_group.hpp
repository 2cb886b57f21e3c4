// ProcessGroup: the collectives, between the ranks of one job.
//
// Every rank calls the same operations in the same order. Each operation carries a fingerprint
// {sequence, operation, reduction, dtype, count, root}; ranks compare it before data moves, and a
// difference is a MismatchError that names both calls. Every wait has a deadline (GroupOptions), a
// dead peer is PeerLost. In both cases the group is broken afterwards: each further call throws.
//
// The order of every floating-point sum is fixed by (algorithm, world, count), never by timing: see
// runtime/comm/schedule, and runtime/comm/executor/engine.hpp for what `automatic` picks at which
// size. Every addition rounds to the element type, also of f16 and bf16. All ranks get the same
// bits, and a repeated run gets them again.
//
// Device memory. A group that was given a device (GroupOptions::device) takes buffers in the memory
// of that device wherever it takes host memory; in one call, all ranks take the same kind. Then:
//
//     the caller's stream   ...forward, backward...|                       |wait()|...optimizer...
//     the group's stream                           `-->[ the collective ]--^
//
//   - The collective starts after all that the caller's current stream (Stream::current() of the
//     calling thread) held at the time of the call, and runs on a stream of the group's own, in the
//     order of the group's calls.
//   - wait() makes the current stream of the thread that waits go on after the collective; the host
//     itself waits only until every rank has made the call, which is where a mismatch, a lost peer
//     and the deadline are thrown. host_wait() also waits for the result, and throws what went
//     wrong on the device. The next call of the group throws that too.
//   - The blocking forms are the asynchronous ones followed by wait(): ordered on the stream.
//   - Buffers may be any memory of the device. Communication memory (allocate_on) is read and
//     written by the peers where it lies; other memory is staged.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/comm/buffer.hpp"
#include "runtime/comm/types/bootstrap.hpp"
#include "runtime/comm/work.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith::comm {

// avg multiplies each contribution by fl(1/world) and then sums, as PyTorch DDP does (floating
// types only).
enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max };
[[nodiscard]] std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // UsageError naming the choices

// Orders of the sums; automatic picks by size and by whose memory it is, from fixed thresholds, so
// that the choice (and with it the bits) is the same in every run.
enum class Algorithm : std::uint8_t {
  automatic,
  ring,
  gloo_ring,
  direct,
  tree,
  halving_doubling,
  double_tree,
  hierarchical  // within nodes, then between them
};
[[nodiscard]] std::string_view name_of(Algorithm algorithm);
Algorithm parse_algorithm(std::string_view name);

// How collectives on device memory are run (runtime/comm/device). Both give the same
// bits. automatic: b where every rank has a device of its own and reaches the others', else a.
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
  std::chrono::milliseconds timeout{30'000};   // deadline of every wait
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
  // Ranks r k to r k + k - 1 count as node r, as if that were a host: TCP between them, shared
  // memory within. 0: nodes are hosts, as they are found. All ranks alike.
  int ranks_per_node = 0;
  // An existing folder for the flight recorder's files
  // (runtime/comm/failure/last_words.hpp) of a group that fails; empty: they are not
  // written.
  std::string flight_folder = {};
};

// Memory that the other ranks of the node can read and reduce from directly: no staging copy. Host
// code must not follow the pointer of device memory.
class CommMemory {
 public:
  virtual ~CommMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual Bytes size() const = 0;
  [[nodiscard]] virtual Device device() const { return Device::cpu(); }
  template <class T>
  [[nodiscard]] std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), size().value / sizeof(T)};
  }
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  [[nodiscard]] virtual Device device() const { return options().device; }

  // Zero-filled, 64-byte aligned communication memory of the host. Not a collective: ranks may
  // allocate differently.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate(Bytes size) = 0;
  // The same on the host or on the group's device; UsageError for another device. The caller's
  // current stream may use it at once.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size);

  // [rank]: the number of its node, whose ranks share memory; empty if it is not known.
  [[nodiscard]] virtual std::vector<int> node_of() const { return {}; }

  // Bytes that this rank has sent to ranks on other nodes, with what travels beside the data.
  [[nodiscard]] virtual Bytes sent_between_nodes() const { return Bytes(0); }
  // GroupOptions::flight_folder, where it is known only later.
  virtual void keep_flight_in(const std::string& folder);

  // One line per fact about how ranks reach each other, and why a better way was refused.
  [[nodiscard]] virtual std::vector<std::string> describe_transport() const;

  // ---- asynchronous forms; buffers must stay valid and untouched until wait() ----
  // In place when input and output are the same memory; partial overlap is a UsageError.
  virtual WorkPtr all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) = 0;
  virtual WorkPtr reduce_scatter_async(ConstBuffer input, Buffer output,
                                       ReduceOp op) = 0;                   // input = world * output
  virtual WorkPtr all_gather_async(ConstBuffer input, Buffer output) = 0;  // output = world * input
  virtual WorkPtr broadcast_async(Buffer data, int root) = 0;
  virtual WorkPtr reduce_async(ConstBuffer input, Buffer output, ReduceOp op,
                               int root) = 0;  // output on root only
  virtual WorkPtr gather_async(ConstBuffer input, Buffer output,
                               int root) = 0;  // output on root: world * input
  virtual WorkPtr scatter_async(ConstBuffer input, Buffer output,
                                int root) = 0;  // input on root: world * output
  virtual WorkPtr all_to_all_async(ConstBuffer input, Buffer output) = 0;  // both world * chunk
  virtual WorkPtr send_async(ConstBuffer data, int peer) = 0;
  virtual WorkPtr recv_async(Buffer data, int peer) = 0;
  virtual WorkPtr barrier_async(Site site = Site::here()) = 0;

  // ---- blocking forms: the same, then wait(). Implementations may run them on the calling thread.
  // ----
  virtual void all_reduce(ConstBuffer input, Buffer output, ReduceOp op) {
    all_reduce_async(input, output, op)->wait();
  }
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum) { all_reduce(data, data, op); }
  virtual void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
    reduce_scatter_async(in, out, op)->wait();
  }
  virtual void all_gather(ConstBuffer in, Buffer out) { all_gather_async(in, out)->wait(); }
  virtual void broadcast(Buffer data, int root) { broadcast_async(data, root)->wait(); }
  virtual void reduce(ConstBuffer in, Buffer out, ReduceOp op, int root) {
    reduce_async(in, out, op, root)->wait();
  }
  virtual void gather(ConstBuffer in, Buffer out, int root) { gather_async(in, out, root)->wait(); }
  virtual void scatter(ConstBuffer in, Buffer out, int root) {
    scatter_async(in, out, root)->wait();
  }
  virtual void all_to_all(ConstBuffer in, Buffer out) { all_to_all_async(in, out)->wait(); }
  virtual void send(ConstBuffer data, int peer) { send_async(data, peer)->wait(); }
  virtual void recv(Buffer data, int peer) { recv_async(data, peer)->wait(); }
  virtual void barrier(Site site = Site::here()) { barrier_async(site)->wait(); }

  // Ends the group: a call that is running, here or on another rank, throws Aborted within
  // milliseconds, and so does every later one. From any thread. UsageError: not of this group.
  virtual void abort(Site site = Site::here());

  // ---- groups of some of the ranks; collective over this group ----
  // A group has memory, connections and a queue of its own: groups run side by side, and may
  // outlive the one they came from. They are made with the options of that one.
  //
  // Rank i of the new group is ranks[i] here; all ranks give the same list (MismatchError), and
  // those that are not in it get a group too, each call of which is a UsageError that says so.
  [[nodiscard]] virtual std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
  // Groups of the ranks that give the same colour, in their order here; with a negative colour, of
  // none. One for each node: split(node_of()[rank()]).
  [[nodiscard]] virtual std::shared_ptr<ProcessGroup> split(int colour);

  [[nodiscard]] virtual const GroupOptions& options() const = 0;
  virtual void set_algorithm(Algorithm algorithm) = 0;  // of later calls; all ranks alike
  // The algorithm of later all-reduces by their size: the first entry that is not smaller, else the
  // last. All ranks alike, in the order of the sizes; until the next set_algorithm().
  virtual void set_algorithms(const std::vector<std::pair<Bytes, Algorithm>>& by_size);
};

// The group of all ranks of this job, found as options.bootstrap says: by default through whatever
// started this process (mpirun, ringrun, srun), or else it is alone. Collective.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(const GroupOptions& options = {});

// The seam for launchers and tests: a group over any bootstrap. Collective over its ranks.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(std::shared_ptr<Bootstrap> bootstrap,
                                                               const GroupOptions& options = {});

}  // namespace ringsmith::comm
