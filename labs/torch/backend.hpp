// PyTorch's `ringsmith` backend: torch.distributed's calls on the runtime's group.
//
// | PyTorch                              | here                                                   |
// |--------------------------------------|--------------------------------------------------------|
// | all_reduce, broadcast, reduce        | the runtime's, in place                                |
// | all_gather, gather, scatter,         | the runtime's, through communication memory: lists of  |
// |   reduce_scatter of lists            |   tensors are packed into one buffer, then unpacked    |
// | the same of one tensor (_base)       | the runtime's, in the tensors' own memory              |
// | all_to_all, equal parts              | the runtime's, in the tensors' own memory              |
// | all_to_all of lists or split sizes   | two calls: the sizes, which are compared; then parts   |
// |                                      |   padded to the longest                                |
// | send, recv                           | messages.hpp                                           |
// | barrier                              | the runtime's                                          |
// | monitored_barrier                    | bootstrap.hpp                                          |
// | bit operations, sparse all_reduce    | gathered.hpp                                           |
//
// Calls are asynchronous (jobs.hpp). The call itself checks its arguments, on the rank that made
// the mistake; wait() or the future reports errors that only appear between ranks.
#pragma once

#include <ATen/ATen.h>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>
#if __has_include(<torch/version.h>)
#include <torch/version.h>
#else
#include <torch/headeronly/version.h>  // PyTorch 2.14
#endif
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include "labs/torch/flat.hpp"
#include "labs/torch/gathered.hpp"
#include "labs/torch/group.hpp"
#include "labs/torch/jobs.hpp"
#include "labs/torch/messages.hpp"

namespace ringsmith::pytorch {

// Since PyTorch 2.0 a plug-in is a Backend; a ProcessGroup has a Backend for each kind of device.
#if TORCH_VERSION_MAJOR >= 2
#define RINGSMITH_TORCH_COALESCES (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 1)
#define RINGSMITH_TORCH_TIMES (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 2)
using PluginBase = c10d::Backend;
#else
#define RINGSMITH_TORCH_COALESCES 0
#define RINGSMITH_TORCH_TIMES 0
using PluginBase = c10d::ProcessGroup;
#endif

class Backend final : public PluginBase {
 public:
  using Pending = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  // Collective. The members' first exchange uses the store. scope: for errors, "in the group of
  // ranks 0, 2"; empty for all ranks of the job.
  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
          const comm::GroupOptions& options, const std::string& scope);
  ~Backend() override;

  const std::string getBackendName() const override { return "ringsmith"; }

  Pending broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Pending allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Pending allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  Pending reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Pending allgather(Lists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  Pending _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  Pending allgather_coalesced(Lists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
#if RINGSMITH_TORCH_COALESCES
  Pending allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  Pending reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
#endif
  Pending gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Pending scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Pending reduce_scatter(Tensors& outputs, Lists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  Pending _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  Pending alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override;
  Pending alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  Pending send(Tensors& tensors, int to, int tag) override;
  Pending recv(Tensors& tensors, int from, int tag) override;
  Pending recvAnysource(Tensors& tensors, int tag) override;
  Pending barrier(const c10d::BarrierOptions& options) override;
  // Meets in the store, with a deadline for this call alone. The error of every rank names all
  // ranks that are missing, with or without wait_all_ranks.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

#if RINGSMITH_TORCH_COALESCES
  Pending allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return allreduce(tensors, options);
  }
#endif
#if RINGSMITH_TORCH_TIMES
  void enableCollectivesTiming() override {}  // PyTorch's profiler has the times of all calls
#endif

  // Sets the deadline of waits from now on, and of collectives in progress. Thread-safe.
  void set_timeout(std::chrono::milliseconds timeout);
#ifdef C10D_BACKEND_HAS_HOOKS  // PyTorch 2.14: torch.distributed.set_timeout(), split_group()
  void setTimeout(std::chrono::milliseconds timeout) override { set_timeout(timeout); }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  c10d::ErrorType getError() override;  // REMOTE_ERROR if another rank has died
  // Collective for the ranks of the new group, which meet in `store`.
  c10::intrusive_ptr<PluginBase> split(const c10::intrusive_ptr<c10d::Store>& store,
                                       const std::vector<int>& ranks,
                                       const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<PluginBase> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                       const c10::intrusive_ptr<Options>& options, const int& rank,
                                       const int& size) override;
#endif

  // PyTorch compares the numbers of calls to find a rank that is behind.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }

  // Makes the collectives in flight fail with Aborted on all ranks. Does not affect send() and
  // recv().
  void abort_group(comm::Site site) { group_->abort(site); }
  // Returns memory from which the other ranks of this host reduce directly.
  [[nodiscard]] std::shared_ptr<comm::CommMemory> allocate(std::size_t bytes) const {
    return group_->allocate(Bytes(bytes));
  }
  [[nodiscard]] std::vector<std::string> facts() const;
  [[nodiscard]] int ranks_on_machine() const { return group_->ranks_on_machine(); }
  // overlap: the collectives that backward starts run on the group's thread while backward
  // continues, which is the default. Otherwise backward's thread runs them, one by one.
  void set_overlap(bool overlap) { overlaps_ = overlap; }

 private:
  // body runs when it is the call's turn.
  Pending submit(c10d::OpType type, const char* title, Tensors results, std::function<void()> body);
  Pending allreduce_of_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  std::byte* scratch(std::size_t bytes);
  Scratch scratch_of();
  Pending exchange(const char* title, c10d::OpType type, Tensors outputs, Tensors inputs,
                   Tensors results);
  void exchange_now(const Tensors& outputs, const Tensors& inputs, comm::Site site);
  Pending message(Tensors& tensors, int peer, int tag, bool out);
  Outgoing& outgoing_to(int peer);
  Incoming& incoming_from(int peer);
  [[nodiscard]] StoreMeeting meeting(int from, int to) const;
  std::shared_ptr<Group> connect(int from, int to);

  c10::intrusive_ptr<c10d::Store> store_;
  comm::GroupOptions options_;
  std::string scope_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<comm::CommMemory> scratch_;  // used by one call at a time
  std::shared_ptr<Jobs> jobs_;
  std::atomic<std::uint64_t> calls_{0}, monitored_barriers_{0};
  std::atomic<bool> ending_{false}, overlaps_{true};
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex directions_;
  std::map<int, std::unique_ptr<Outgoing>> outgoing_;  // by peer
  std::map<int, std::unique_ptr<Incoming>> incoming_;
  std::mutex links_;                             // held briefly, and never while other code runs
  std::vector<std::weak_ptr<Group>> connected_;  // the groups of these directions
};

// The innermost line of the user's Python program, outside PyTorch and this package, that led to
// the current call. Acquires the GIL. Returns an empty site if there is no interpreter.
[[nodiscard]] comm::Site python_site();
// Files below these folders do not count as the user's program.
void set_library_folders(std::vector<std::string> folders);

}  // namespace ringsmith::pytorch
