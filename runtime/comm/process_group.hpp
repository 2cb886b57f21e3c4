// The collectives between the ranks of one job.
//
// Every rank must call the same collectives in the same order. Before ranks use the data, they
// compare {operation, reduction, dtype, count, root, algorithm, kind of memory}; for send and recv,
// only {dtype, count, kind of memory}. If calls differ, a MismatchError names both. Every wait has
// a deadline (GroupOptions). A wait for a dead peer throws PeerLost. These errors break the group.
//
// The order of every floating-point sum is fixed by the call (algorithm, count and type), the
// memory of its buffers, the world size and the nodes, never by timing: see runtime/comm/schedule,
// and for `automatic` runtime/comm/schedule/select.hpp. Every addition rounds to the element type,
// including f16 and bf16. All ranks get the same bits, in every run.
//
// A group with a device (GroupOptions::device) also accepts buffers in that device's memory. In one
// call, all ranks must use the same kind of memory. On device memory:
//
//     the caller's stream   ...forward, backward...|                       |wait()|...optimizer...
//     the group's stream                           `-->[ the collective ]--^
//
//   - The collective starts after all work that was in the calling thread's current stream
//     (Stream::current()) at the time of the call. It runs on the group's own stream, in the order
//     of the group's calls.
//   - wait() makes the waiting thread's current stream wait for the collective. The host waits only
//     until every rank has made the call or, if the data passes through host memory, for the
//     collective there. wait() throws if calls do not match, a peer is lost or the deadline passes.
//     host_wait() also waits for the result. Device errors are thrown by host_wait() and by the
//     group's next call.
//   - The blocking forms are the asynchronous forms followed by wait().
//   - Buffers may be in any memory of the device. Only communication memory (allocate_on) can be
//     accessed by peers in place; other memory is staged.
//
// Every typed function below checks this rank's arguments (UsageError) and packs them into a
// Transfer, which submit() or run() executes.
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

  // ---- collectives; types/collective.hpp describes the contents of their buffers ----
  // A call is in place if input and output are the same memory, or if the smaller buffer is this
  // rank's part of the larger; any other overlap is a UsageError. A buffer that only the root has
  // is ignored on other ranks. `part` below has the same length on every rank. The caller must keep
  // the buffers of an asynchronous form valid, and not change them, until wait() returns.
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op) {
    run(checked(Collective::all_reduce, input, output, kNoRoot, op));
  }
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum) { all_reduce(data, data, op); }
  WorkPtr all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) {
    return submit(checked(Collective::all_reduce, input, output, kNoRoot, op));
  }
  // The input holds world parts.
  void reduce_scatter(ConstBuffer input, Buffer part, ReduceOp op) {
    run(checked(Collective::reduce_scatter, input, part, kNoRoot, op));
  }
  WorkPtr reduce_scatter_async(ConstBuffer input, Buffer part, ReduceOp op) {
    return submit(checked(Collective::reduce_scatter, input, part, kNoRoot, op));
  }
  // The output holds world parts.
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
  // Only the root has an output.
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    run(checked(Collective::reduce, input, output, root, op));
  }
  WorkPtr reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    return submit(checked(Collective::reduce, input, output, root, op));
  }
  // Only the root has an output, which holds world parts.
  void gather(ConstBuffer part, Buffer output, int root) {
    run(checked(Collective::gather, part, output, root));
  }
  WorkPtr gather_async(ConstBuffer part, Buffer output, int root) {
    return submit(checked(Collective::gather, part, output, root));
  }
  // Only the root has an input, which holds world parts.
  void scatter(ConstBuffer input, Buffer part, int root) {
    run(checked(Collective::scatter, input, part, root));
  }
  WorkPtr scatter_async(ConstBuffer input, Buffer part, int root) {
    return submit(checked(Collective::scatter, input, part, root));
  }
  // Both buffers hold world parts.
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

  // ---- implemented by each kind of group, for calls whose arguments have been checked ----
  virtual WorkPtr submit(const Transfer& transfer) = 0;
  // Like submit() followed by wait(), but may avoid the communication thread (queue.hpp).
  virtual void run(const Transfer& transfer) { submit(transfer)->wait(); }

  // Ends the group: a running call, on this or another rank, throws Aborted within milliseconds,
  // as does every later call, unless the group was broken before. May be called from any thread.
  // Throws UsageError if this kind of group cannot be aborted.
  virtual void abort(Site site = Site::here());

  // ---- communication memory ----
  // Returns zero-filled, 64-byte aligned communication memory of the host. This is not a
  // collective: ranks may allocate different sizes.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate(Bytes size) = 0;
  // Like allocate(), on the host or on the group's device. Throws UsageError for another device.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size);

  // ---- groups of some of the ranks; collective over this group ----
  // Each group has its own memory, connections and queue, so groups run concurrently and may
  // outlive their parent. They inherit its options.
  //
  // Rank i of the new group is rank ranks[i] of this group. All ranks must pass the same list
  // (MismatchError). Ranks outside it get a group whose every call throws UsageError.
  [[nodiscard]] virtual std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
  // Makes a group of the ranks with the same colour, ordered by their ranks in this group. A rank
  // with a negative colour joins none. split(node_of()[rank()]) makes one group for each node.
  [[nodiscard]] virtual std::shared_ptr<ProcessGroup> split(int colour);

  // ---- options and facts ----
  virtual void set_algorithm(Algorithm algorithm) = 0;  // of later calls; same on all ranks
  // Sets the algorithm of later all-reduces by size, until the next call of this function or of
  // set_algorithm(). An all-reduce uses the first entry of at least its size, or else the last
  // entry. The entries must be ordered by size and the same on all ranks.
  virtual void set_algorithms(const std::vector<std::pair<Bytes, Algorithm>>& by_size);
  // Returns the number of each rank's node, by rank; empty if unknown. Ranks of a node may share
  // memory.
  [[nodiscard]] virtual std::vector<int> node_of() const { return {}; }
  // Returns the number of ranks that share this rank's CPUs, itself included.
  [[nodiscard]] virtual int ranks_on_machine() const { return size(); }
  // Returns the bytes that this rank has sent to ranks on other nodes, including control data.
  [[nodiscard]] virtual Bytes sent_between_nodes() const { return Bytes(0); }
  // Returns lines of text: how the ranks reach each other, and why no faster transport is used.
  [[nodiscard]] virtual std::vector<std::string> describe_transport() const { return {}; }
  // Does for an existing group what GroupOptions::flight_folder does for a new one.
  virtual void keep_flight_in(const std::string& /*folder*/) {}

 protected:
  // Throws UsageError if this rank is not a member. Called before other checks.
  virtual void check_member(const char* /*call*/) const {}

 private:
  static constexpr int kNoRoot = -1;
  [[nodiscard]] Transfer checked(Collective collective, ConstBuffer input, Buffer output,
                                 int root = kNoRoot, ReduceOp op = {}) const;
  [[nodiscard]] Transfer checked_message(Collective collective, ConstBuffer input, Buffer output,
                                         int peer) const;
};

// Makes the group of all ranks of this job. Collective. options.bootstrap selects how the ranks
// find each other, by default through the launcher of this process (mpirun, ringrun, srun). A
// process without a launcher gets a group of one rank. Defined in runtime/job/bootstrap.cpp:
// programs must also link that room's library.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(const GroupOptions& options = {});
// Makes the group over the given bootstrap, for launchers, subgroups and tests. Collective.
[[nodiscard]] std::shared_ptr<ProcessGroup> init_process_group(std::shared_ptr<Bootstrap> bootstrap,
                                                               const GroupOptions& options = {});

}  // namespace ringsmith::comm
