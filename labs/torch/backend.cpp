#include "labs/torch/backend.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <pybind11/pybind11.h>
#include <span>
#include <torch/csrc/autograd/graph_task.h>

#include "labs/torch/checks.hpp"
#include "labs/torch/errors.hpp"
#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::pytorch {

namespace {

using c10d::OpType;

std::size_t sum_of(const std::vector<std::int64_t>& sizes) {
  return static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
}

std::vector<at::Tensor> cut(const char* call, const at::Tensor& tensor,
                            const std::vector<std::int64_t>& sizes, int ranks) {
  const auto world = static_cast<std::size_t>(ranks);
  const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (sizes.size() != world)
    throw UsageError(std::string(call) + ": " + std::to_string(sizes.size()) + " split sizes for " +
                     std::to_string(ranks) + " ranks");
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n < 0; }) ||
      sum_of(sizes) != static_cast<std::size_t>(rows))
    throw UsageError(std::string(call) + ": split sizes must add up to the tensor's first " +
                     "dimension, " + std::to_string(rows));
  return tensor.split_with_sizes(sizes, 0);
}

}  // namespace

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 const comm::GroupOptions& options, const std::string& scope)
    : PluginBase(rank, size),
      store_(store),
      options_(options),
      scope_(scope),
      group_(std::make_shared<Group>(
          std::make_shared<StoreMeeting>(store, StoreMeeting::Place{"ringsmith/collectives", rank,
                                                                    size, options.timeout, scope}),
          options)),
      jobs_(std::make_shared<Jobs>([group = group_](bool hold) { group->hold_core(hold); })),
      timeout_(options.timeout) {}

// Python may drop the last reference with the GIL held, but the last jobs' callbacks may need it.
Backend::~Backend() {
  ending_ = true;
  const bool with_gil = Py_IsInitialized() != 0 && PyGILState_Check() != 0;
  std::unique_ptr<pybind11::gil_scoped_release> released;
  if (with_gil) released = std::make_unique<pybind11::gil_scoped_release>();
  jobs_->stop();
  for (auto& [peer, direction] : outgoing_) direction->stop();
  for (auto& [peer, direction] : incoming_) direction->stop();
}

std::vector<std::string> Backend::facts() const {
  std::vector<std::string> facts = group_->describe_transport();
  if (facts.empty()) facts.emplace_back("all ranks share memory");
  return facts;
}

Backend::Pending Backend::submit(OpType type, const char* title, Tensors results,
                                 std::function<void()> body) {
  ++calls_;
  auto job = c10::make_intrusive<Job>(getRank(), type, title, std::move(results), std::move(body));
  // This list is null on a thread that does not run backward.
  if (!overlaps_ && torch::autograd::get_current_graph_task_exec_info() != nullptr)
    jobs_->run(job);
  else
    jobs_->push(job);
  return job;
}

Scratch Backend::scratch_of() {
  return [this](std::size_t bytes) { return scratch(bytes); };
}

std::byte* Backend::scratch(std::size_t bytes) {
  if (!scratch_ || scratch_->size().value < bytes) {
    scratch_ = nullptr;  // freed first, so that the new block can reuse its space
    scratch_ = group_->allocate(Bytes(std::max<std::size_t>(bytes, 1)));
  }
  return scratch_->data();
}

Backend::Pending Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return with_python_errors([&] {
    const at::Tensor data = only_one("broadcast", tensors);
    check_tensor("broadcast", data, true);
    check_root("broadcast", options.rootRank, getSize());
    const auto root = static_cast<int>(options.rootRank);
    return submit(OpType::BROADCAST, "ringsmith:broadcast", tensors,
                  [this, data, root, site = python_site()] {
                    Flat flat(data);
                    group_->broadcast(flat.buffer(site), root);
                    if (getRank() != root) flat.give_back();
                  });
  });
}

Backend::Pending Backend::allgather(Lists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions&) {
  return with_python_errors([&] {
    const at::Tensor input = only_one("all_gather", inputs);
    const Tensors parts = only_list("all_gather", outputs, getSize());
    check_tensor("all_gather", input, false);
    check_parts("all_gather", parts, input, true);
    return submit(OpType::ALLGATHER, "ringsmith:all_gather", parts,
                  [this, parts, input, site = python_site()] {
                    const std::size_t bytes = input.nbytes();
                    std::byte* const memory = scratch(bytes * parts.size());
                    std::byte* const mine = memory + static_cast<std::size_t>(getRank()) * bytes;
                    copy_out(input, mine);
                    group_->all_gather(buffer_like(input, mine, 1, site),
                                       buffer_like(input, memory, parts.size(), site));
                    for (std::size_t r = 0; r < parts.size(); ++r)
                      copy_in(memory + r * bytes, parts[r]);
                  });
  });
}

Backend::Pending Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions&) {
  return with_python_errors([&] {
    constexpr auto kCall = "all_gather_into_tensor";
    check_tensor(kCall, input, false);
    check_tensor(kCall, output, true);
    check_same_type(kCall, input, output);
    return submit(OpType::_ALLGATHER_BASE, "ringsmith:all_gather_into_tensor", {output},
                  [this, output, input, site = python_site()] {
                    Flat all(output), mine(input);
                    group_->all_gather(mine.buffer(site), all.buffer(site));
                    all.give_back();
                  });
  });
}

#if RINGSMITH_TORCH_COALESCES
// One call after the other in the tensors' own memory: packing would copy everything twice.
Backend::Pending Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions&) {
  return with_python_errors([&] {
    constexpr auto kCall = "all_gather_into_tensor_coalesced";
    check_equal_lengths(kCall, outputs, inputs);
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      check_tensor(kCall, inputs[t], false);
      check_tensor(kCall, outputs[t], true);
      check_same_type(kCall, inputs[t], outputs[t]);
      check_world_times(kCall, outputs[t], inputs[t], getSize());
    }
    return submit(OpType::COALESCED, "ringsmith:all_gather_into_tensor_coalesced", outputs,
                  [this, outputs, inputs, site = python_site()] {
                    for (std::size_t t = 0; t < inputs.size(); ++t) {
                      Flat all(outputs[t]), mine(inputs[t]);
                      group_->all_gather(mine.buffer(site), all.buffer(site));
                      all.give_back();
                    }
                  });
  });
}

#endif

// outputs[rank][tensor]. Makes one all_gather for all tensors.
Backend::Pending Backend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions&) {
  return with_python_errors([&] {
    constexpr auto kCall = "all_gather_coalesced";
    if (outputs.size() != static_cast<std::size_t>(getSize()))
      throw UsageError(std::string(kCall) + ": " + std::to_string(outputs.size()) +
                       " lists for a group of " + std::to_string(getSize()));
    Tensors results;
    for (const Tensors& list : outputs) {
      if (list.size() != inputs.size())
        throw UsageError(std::string(kCall) +
                         ": each list needs as many tensors as there are inputs, " +
                         std::to_string(inputs.size()) + ", got " + std::to_string(list.size()));
      for (std::size_t t = 0; t < list.size(); ++t) check_parts(kCall, {list[t]}, inputs[t], true);
      results.insert(results.end(), list.begin(), list.end());
    }
    for (const at::Tensor& input : inputs) check_tensor(kCall, input, false);
    return submit(OpType::ALLGATHER_COALESCED, "ringsmith:all_gather_coalesced", results,
                  [this, outputs, inputs, site = python_site()] {
                    std::size_t bytes = 0;
                    for (const at::Tensor& input : inputs) bytes += input.nbytes();
                    std::byte* const memory = scratch(bytes * outputs.size());
                    std::byte* const mine = memory + static_cast<std::size_t>(getRank()) * bytes;
                    std::size_t at = 0;
                    for (const at::Tensor& input : inputs) {
                      copy_out(input, mine + at);
                      at += input.nbytes();
                    }
                    group_->all_gather(
                        comm::Buffer(mine, Elements(bytes), DType::u8, site),
                        comm::Buffer(memory, Elements(bytes * outputs.size()), DType::u8, site));
                    at = 0;
                    for (const Tensors& list : outputs)
                      for (const at::Tensor& tensor : list) {
                        copy_in(memory + at, tensor);
                        at += tensor.nbytes();
                      }
                  });
  });
}

Backend::Pending Backend::gather(Lists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  return with_python_errors([&] {
    const at::Tensor input = only_one("gather", inputs);
    check_tensor("gather", input, false);
    check_root("gather", options.rootRank, getSize());
    const auto root = static_cast<int>(options.rootRank);
    Tensors parts;
    if (getRank() == root) parts = only_list("gather", outputs, getSize());
    if (getRank() != root && !outputs.empty())
      throw UsageError("gather: only the root, rank " + std::to_string(root) + ", has outputs");
    check_parts("gather", parts, input, true);
    return submit(
        OpType::GATHER, "ringsmith:gather", parts,
        [this, parts, input, root, site = python_site()] {
          const std::size_t bytes = input.nbytes();
          std::byte* const memory = scratch(bytes * std::max<std::size_t>(parts.size(), 1));
          std::byte* const mine =
              parts.empty() ? memory : memory + static_cast<std::size_t>(getRank()) * bytes;
          copy_out(input, mine);
          group_->gather(
              buffer_like(input, mine, 1, site),
              parts.empty() ? comm::Buffer() : buffer_like(input, memory, parts.size(), site),
              root);
          for (std::size_t r = 0; r < parts.size(); ++r) copy_in(memory + r * bytes, parts[r]);
        });
  });
}

Backend::Pending Backend::scatter(Tensors& outputs, Lists& inputs,
                                  const c10d::ScatterOptions& options) {
  return with_python_errors([&] {
    const at::Tensor output = only_one("scatter", outputs);
    check_tensor("scatter", output, true);
    check_root("scatter", options.rootRank, getSize());
    const auto root = static_cast<int>(options.rootRank);
    Tensors parts;
    if (getRank() == root) parts = only_list("scatter", inputs, getSize());
    if (getRank() != root && !inputs.empty())
      throw UsageError("scatter: only the root, rank " + std::to_string(root) + ", has inputs");
    check_parts("scatter", parts, output, false);
    return submit(
        OpType::SCATTER, "ringsmith:scatter", outputs,
        [this, parts, output, root, site = python_site()] {
          const std::size_t bytes = output.nbytes();
          std::byte* const memory = scratch(bytes * std::max<std::size_t>(parts.size(), 1));
          for (std::size_t r = 0; r < parts.size(); ++r) copy_out(parts[r], memory + r * bytes);
          std::byte* const mine =
              parts.empty() ? memory : memory + static_cast<std::size_t>(getRank()) * bytes;
          group_->scatter(
              parts.empty() ? comm::ConstBuffer() : buffer_like(output, memory, parts.size(), site),
              buffer_like(output, mine, 1, site), root);
          copy_in(mine, output);
        });
  });
}

Backend::Pending Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_sizes,
                                        std::vector<int64_t>& input_sizes,
                                        const c10d::AllToAllOptions&) {
  return with_python_errors([&] {
    constexpr auto kCall = "all_to_all_single";
    check_tensor(kCall, input, false);
    check_tensor(kCall, output, true);
    check_same_type(kCall, input, output);
    if (!output_sizes.empty() || !input_sizes.empty()) {
      const auto equal = [&](const at::Tensor& t) {
        const std::int64_t rows = t.dim() == 0 ? 0 : t.size(0);
        if (rows % getSize() != 0)
          throw UsageError(std::string(kCall) + ": " + std::to_string(rows) +
                           " rows cannot be split into equal parts for " +
                           std::to_string(getSize()) + " ranks");
        return std::vector<std::int64_t>(static_cast<std::size_t>(getSize()), rows / getSize());
      };
      return exchange(
          "ringsmith:all_to_all_single", OpType::ALLTOALL_BASE,
          cut(kCall, output, output_sizes.empty() ? equal(output) : output_sizes, getSize()),
          cut(kCall, input, input_sizes.empty() ? equal(input) : input_sizes, getSize()), {output});
    }
    check_same_size(kCall, input, output);
    return submit(OpType::ALLTOALL_BASE, "ringsmith:all_to_all_single", {output},
                  [this, output, input, site = python_site()] {
                    Flat to(output), from(input);
                    group_->all_to_all(from.buffer(site), to.buffer(site));
                    to.give_back();
                  });
  });
}

Backend::Pending Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions&) {
  return with_python_errors([&] {
    constexpr auto kCall = "all_to_all";
    const auto world = static_cast<std::size_t>(getSize());
    if (outputs.size() != world || inputs.size() != world)
      throw UsageError(std::string(kCall) + ": lists of " + std::to_string(world) +
                       " tensors are needed, one for each rank, got " +
                       std::to_string(outputs.size()) + " outputs and " +
                       std::to_string(inputs.size()) + " inputs");
    for (const at::Tensor& input : inputs) {
      check_tensor(kCall, input, false);
      check_same_type(kCall, input, inputs[0]);
    }
    for (const at::Tensor& output : outputs) {
      check_tensor(kCall, output, true);
      check_same_type(kCall, output, inputs[0]);
    }
    return exchange("ringsmith:all_to_all", OpType::ALLTOALL, outputs, inputs, outputs);
  });
}

Backend::Pending Backend::exchange(const char* title, OpType type, Tensors outputs, Tensors inputs,
                                   Tensors results) {
  return submit(type, title, std::move(results),
                [this, outputs = std::move(outputs), inputs = std::move(inputs),
                 site = python_site()] { exchange_now(outputs, inputs, site); });
}

// Every rank sends to each other rank the number of bytes that it will send there, and the length
// of its own longest part. So every rank can pad all parts to the longest part of any rank.
void Backend::exchange_now(const Tensors& outputs, const Tensors& inputs, comm::Site site) {
  const std::size_t world = inputs.size();
  std::vector<std::int64_t> sent(2 * world), told(2 * world);
  std::size_t longest = 0;
  for (const at::Tensor& input : inputs) longest = std::max(longest, input.nbytes());
  for (std::size_t r = 0; r < world; ++r) {
    sent[2 * r] = static_cast<std::int64_t>(inputs[r].nbytes());
    sent[2 * r + 1] = static_cast<std::int64_t>(longest);
  }
  group_->all_to_all(comm::ConstBuffer(std::span<const std::int64_t>(sent), site),
                     comm::Buffer(std::span<std::int64_t>(told), site));
  for (std::size_t r = 0; r < world; ++r) {
    longest = std::max(longest, static_cast<std::size_t>(told[2 * r + 1]));
  }
  std::byte* const memory = scratch(2 * world * longest);
  std::byte* const arrived = memory + world * longest;
  for (std::size_t r = 0; r < world; ++r) copy_out(inputs[r], memory + r * longest);
  const Elements all(world * longest);
  group_->all_to_all(comm::ConstBuffer(memory, all, DType::u8, site),
                     comm::Buffer(arrived, all, DType::u8, site));
  // Throws only now, when no other rank waits for this one any more.
  for (std::size_t r = 0; r < world; ++r)
    if (static_cast<std::size_t>(told[2 * r]) != outputs[r].nbytes())
      throw MismatchError(
          "rank " + std::to_string(getRank()) + " called all_to_all with room for " +
              std::to_string(outputs[r].nbytes()) + " bytes from rank " + std::to_string(r) +
              ", which sends " + std::to_string(told[2 * r]) + ": both sizes must match",
          seen_by(getRank(), static_cast<int>(r)));
  for (std::size_t r = 0; r < world; ++r) copy_in(arrived + r * longest, outputs[r]);
}

Backend::Pending Backend::barrier(const c10d::BarrierOptions&) {
  return with_python_errors([&] {
    return submit(OpType::BARRIER, "ringsmith:barrier", {},
                  [this, site = python_site()] { group_->barrier(site); });
  });
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  with_python_errors([&] {
    StoreMeeting::Place place{"ringsmith/monitored-" + std::to_string(monitored_barriers_++),
                              getRank(), getSize(), options.timeout, scope_};
    if (options.timeout == c10d::kUnsetTimeout) place.timeout = timeout_;
    const std::string line = comm::text_of(python_site());
    place.purpose = "for monitored_barrier()" + (line.empty() ? "" : " at " + line);
    StoreMeeting meeting(store_, std::move(place),
                         [this](int peer) { return group_->loss_of(peer); });
    (void)meeting.all_gather("");
  });
}

#ifdef C10D_BACKEND_HAS_HOOKS
c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<Options>(getBackendName(), timeout_);
}

c10d::ErrorType Backend::getError() {
  for (int peer = 0; peer < getSize(); ++peer)
    if (peer != getRank() && !group_->loss_of(peer).empty()) return c10d::ErrorType::REMOTE_ERROR;
  return c10d::ErrorType::SUCCESS;
}

c10::intrusive_ptr<PluginBase> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::vector<int>& ranks,
                                              const c10::intrusive_ptr<Options>& options) {
  const auto me = std::ranges::find(ranks, getRank());
  if (me == ranks.end()) return nullptr;
  return merge(store, options, static_cast<int>(me - ranks.begin()),
               static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<PluginBase> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                              const c10::intrusive_ptr<Options>& options,
                                              const int& rank, const int& size) {
  return with_python_errors([&]() -> c10::intrusive_ptr<PluginBase> {
    comm::GroupOptions own = options_;
    own.timeout = options->timeout;
    return c10::make_intrusive<Backend>(store->clone(), rank, size, own,
                                        "in the group " + options->group_name);
  });
}
#endif

}  // namespace ringsmith::pytorch
