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
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/buffer.hpp"
#include "runtime/comm/work.hpp"

namespace ringsmith::comm {

// avg multiplies each contribution by fl(1/world) and then sums, as PyTorch DDP does (floating
// types only).
enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max };
[[nodiscard]] std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // UsageError naming the choices

// Orders of the sums; automatic picks by size and by whose memory it is, from fixed thresholds, so
// that the choice (and with it the bits) is the same in every run.
enum class Algorithm : std::uint8_t { automatic, ring, gloo_ring, direct, tree };
[[nodiscard]] std::string_view name_of(Algorithm algorithm);
Algorithm parse_algorithm(std::string_view name);

struct GroupOptions {
  std::chrono::milliseconds timeout{30'000};   // deadline of every wait
  Algorithm algorithm = Algorithm::automatic;  // of all_reduce
};

// Memory that the other ranks of the node can read and reduce from directly: no staging copy.
class CommMemory {
 public:
  virtual ~CommMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual Bytes size() const = 0;
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

  // Zero-filled, 64-byte aligned communication memory. Not a collective: ranks may allocate
  // differently.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate(Bytes size) = 0;

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
  virtual WorkPtr barrier_async() = 0;

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
  virtual void barrier() { barrier_async()->wait(); }

  [[nodiscard]] virtual const GroupOptions& options() const = 0;
  virtual void set_algorithm(
      Algorithm algorithm) = 0;  // of later all_reduce calls; all ranks alike
};

// The group of all ranks of this job: found through Open MPI when started by mpirun, else this
// process alone. The ranks must share a host in this version.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(GroupOptions options = {});

}  // namespace ringsmith::comm
