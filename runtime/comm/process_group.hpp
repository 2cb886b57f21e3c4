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
//
// Every typed function below checks its arguments on the rank that made the mistake (a UsageError
// that names the argument and the remedy) and makes a Transfer of them. A kind of group implements
// what becomes of a Transfer: submit() and run().
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/types/options.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

class Bootstrap;

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const GroupOptions& options() const = 0;
  [[nodiscard]] virtual Device device() const { return options().device; }

  // ---- collectives; what each gives to whom: types/collective.hpp ----
  // In place when input and output are the same memory; partial overlap is a UsageError. A buffer
  // that only the root has is ignored elsewhere. `part` below is as long on every rank. The buffers
  // of asynchronous forms stay valid and untouched until wait().
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op) {
    run(checked(Collective::all_reduce, input, output, kNoRoot, op));
  }
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum) { all_reduce(data, data, op); }
  WorkPtr all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) {
    return submit(checked(Collective::all_reduce, input, output, kNoRoot, op));
  }
  // input: world parts
  void reduce_scatter(ConstBuffer input, Buffer part, ReduceOp op) {
    run(checked(Collective::reduce_scatter, input, part, kNoRoot, op));
  }
  WorkPtr reduce_scatter_async(ConstBuffer input, Buffer part, ReduceOp op) {
    return submit(checked(Collective::reduce_scatter, input, part, kNoRoot, op));
  }
  // output: world parts
  void all_gather(ConstBuffer part, Buffer output) {
    run(checked(Collective::all_gather, part, output));
  }
  WorkPtr all_gather_async(ConstBuffer part, Buffer output) {
    return submit(checked(Collective::all_gather, part, output));
  }
  void broadcast(Buffer data, int root) { run(checked(Collective::broadcast, data, data, root)); }
  WorkPtr broadcast_async(Buffer data, int root) {
    return submit(checked(Collective::broadcast, data, data, root));
  }
  // output: on root only
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    run(checked(Collective::reduce, input, output, root, op));
  }
  WorkPtr reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    return submit(checked(Collective::reduce, input, output, root, op));
  }
  // output: on root only, world parts
  void gather(ConstBuffer part, Buffer output, int root) {
    run(checked(Collective::gather, part, output, root));
  }
  WorkPtr gather_async(ConstBuffer part, Buffer output, int root) {
    return submit(checked(Collective::gather, part, output, root));
  }
  // input: on root only, world parts
  void scatter(ConstBuffer input, Buffer part, int root) {
    run(checked(Collective::scatter, input, part, root));
  }
  WorkPtr scatter_async(ConstBuffer input, Buffer part, int root) {
    return submit(checked(Collective::scatter, input, part, root));
  }
  // Both: world parts.
  void all_to_all(ConstBuffer input, Buffer output) {
    run(checked(Collective::all_to_all, input, output));
  }
  WorkPtr all_to_all_async(ConstBuffer input, Buffer output) {
    return submit(checked(Collective::all_to_all, input, output));
  }
  void send(ConstBuffer data, int peer) { run(checked_message(Collective::send, data, {}, peer)); }
  WorkPtr send_async(ConstBuffer data, int peer) {
    return submit(checked_message(Collective::send, data, {}, peer));
  }
  void recv(Buffer data, int peer) { run(checked_message(Collective::recv, {}, data, peer)); }
  WorkPtr recv_async(Buffer data, int peer) {
    return submit(checked_message(Collective::recv, {}, data, peer));
  }
  void barrier(Site site = Site::here()) {
    check_member("barrier");
    run({{Collective::barrier}, {}, {}, site});
  }
  WorkPtr barrier_async(Site site = Site::here()) {
    check_member("barrier");
    return submit({{Collective::barrier}, {}, {}, site});
  }

  // ---- what a kind of group implements: a call whose arguments have been checked ----
  virtual WorkPtr submit(const Transfer& transfer) = 0;
  // The same, then wait(); may run it on the calling thread.
  virtual void run(const Transfer& transfer) { submit(transfer)->wait(); }

  // Ends the group: a call that is running, here or on another rank, throws Aborted within
  // milliseconds, and so does every later one. From any thread. UsageError: not of this group.
  virtual void abort(Site site = Site::here());

  // ---- communication memory ----
  // Zero-filled, 64-byte aligned communication memory of the host. Not a collective: ranks may
  // allocate differently.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate(Bytes size) = 0;
  // The same on the host or on the group's device; UsageError for another device. The caller's
  // current stream may use it at once.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size);

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

  // ---- choices and facts ----
  virtual void set_algorithm(Algorithm algorithm) = 0;  // of later calls; all ranks alike
  // The algorithm of later all-reduces by their size: the first entry that is not smaller, else the
  // last. All ranks alike, in the order of the sizes; until the next set_algorithm().
  virtual void set_algorithms(const std::vector<std::pair<Bytes, Algorithm>>& by_size);
  // [rank]: the number of its node, whose ranks share memory; empty if it is not known.
  [[nodiscard]] virtual std::vector<int> node_of() const { return {}; }
  // Bytes that this rank has sent to ranks on other nodes, with what travels beside the data.
  [[nodiscard]] virtual Bytes sent_between_nodes() const { return Bytes(0); }
  // One line per fact about how ranks reach each other, and why a better way was refused.
  [[nodiscard]] virtual std::vector<std::string> describe_transport() const { return {}; }
  // GroupOptions::flight_folder, where it is known only later.
  virtual void keep_flight_in(const std::string& /*folder*/) {}

 protected:
  // UsageError where this rank is not a member; before anything else is checked.
  virtual void check_member(const char* /*call*/) const {}

 private:
  static constexpr int kNoRoot = -1;
  // The arguments as a Transfer; or a UsageError that names the one that is wrong.
  [[nodiscard]] Transfer checked(Collective collective, ConstBuffer input, Buffer output,
                                 int root = kNoRoot, ReduceOp op = {}) const;
  [[nodiscard]] Transfer checked_message(Collective collective, ConstBuffer input, Buffer output,
                                         int peer) const;
};

// The group of all ranks of this job, found as options.bootstrap says: by default through whatever
// started this process (mpirun, ringrun, srun), or else it is alone. Collective.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(const GroupOptions& options = {});
// Over any bootstrap, for launchers and tests: bootstrap/bootstrap.hpp. Collective over its ranks.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(std::shared_ptr<Bootstrap> bootstrap,
                                                               const GroupOptions& options = {});

}  // namespace ringsmith::comm
