#include "labs/torch/backend.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <pybind11/pybind11.h>
#include <span>

#include "labs/torch/errors.hpp"
#include "labs/torch/gathered.hpp"

namespace ringsmith::pytorch {

namespace {

using c10d::OpType;

comm::ReduceOp operation_of(const char* call, const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return comm::ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return comm::ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return comm::ReduceOp::prod;
    case c10d::ReduceOp::MIN:
      return comm::ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return comm::ReduceOp::max;
    default:  // bit operations have been dealt with: gathered.hpp
      throw UsageError(std::string(call) +
                       ": PREMUL_SUM is not supported; multiply first, then use SUM");
  }
}

// Rejects types that cannot be summed, and AVG of integers, on the rank that made the call.
void check_reducible(const char* call, const at::Tensor& tensor, comm::ReduceOp op) {
  const at::ScalarType type = tensor.scalar_type();
  if (at::isComplexType(type) || at::isQIntType(type))
    throw UsageError(std::string(call) + ": tensors of type " + at::toString(type) +
                     " cannot be reduced; use torch.view_as_real()");
  if (op == comm::ReduceOp::avg && !at::isFloatingType(type))
    throw UsageError(std::string(call) + ": AVG needs a floating type, got " + at::toString(type) +
                     "; use SUM and divide");
}

const at::Tensor& only_one(const char* call, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1)
    throw UsageError(std::string(call) + ": one tensor for each process is needed, got " +
                     std::to_string(tensors.size()));
  return tensors[0];
}

const std::vector<at::Tensor>& only_list(const char* call,
                                         const std::vector<std::vector<at::Tensor>>& lists,
                                         int size) {
  if (lists.size() != 1 || lists[0].size() != static_cast<std::size_t>(size))
    throw UsageError(std::string(call) + ": a list of " + std::to_string(size) +
                     " tensors is needed, one for each rank, got " +
                     (lists.size() == 1 ? std::to_string(lists[0].size()) + " tensors"
                                        : std::to_string(lists.size()) + " lists"));
  return lists[0];
}

void check_root(const char* call, std::int64_t root, int size) {
  if (root < 0 || root >= size)
    throw UsageError(std::string(call) + ": root " + std::to_string(root) +
                     " is not a rank of this group of " + std::to_string(size));
}

void check_parts(const char* call, const std::vector<at::Tensor>& parts, const at::Tensor& like,
                 bool written) {
  for (const at::Tensor& part : parts) {
    check_tensor(call, part, written);
    check_same_type(call, part, like);
    check_same_size(call, part, like);
  }
}

// Throws unless `large` has the elements of `small` from each rank.
void check_world_times(const char* call, const at::Tensor& large, const at::Tensor& small,
                       int world) {
  if (large.numel() != small.numel() * world)
    throw UsageError(std::string(call) + ": the larger tensor needs " +
                     std::to_string(small.numel() * world) + " elements, the smaller one's " +
                     std::to_string(small.numel()) + " for each of " + std::to_string(world) +
                     " ranks, got " + std::to_string(large.numel()));
}

void check_equal_lengths(const char* call, const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& inputs) {
  if (outputs.size() != inputs.size())
    throw UsageError(std::string(call) + ": as many outputs as inputs are needed, got " +
                     std::to_string(outputs.size()) + " and " + std::to_string(inputs.size()));
}

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
      jobs_(std::make_shared<Jobs>([group = group_](bool hold) { group->hold_core(hold); })) {}

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

Backend::Pending Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return with_python_errors([&] {
    const at::Tensor data = only_one("all_reduce", tensors);
    if (data.defined() && data.is_sparse()) return allreduce_of_sparse(tensors, options);
    check_tensor("all_reduce", data, true);
    if (const auto bits = bit_op_of(options.reduceOp)) {
      check_bits("all_reduce", data);
      return submit(OpType::ALLREDUCE, "ringsmith:all_reduce", tensors,
                    [this, data, bits, site = python_site()] {
                      all_reduce_bits(*group_, scratch_of(), data, *bits, true, site);
                    });
    }
    const comm::ReduceOp op = operation_of("all_reduce", options.reduceOp);
    check_reducible("all_reduce", data, op);
    return submit(OpType::ALLREDUCE, "ringsmith:all_reduce", tensors,
                  [this, data, op, site = python_site()] {
                    Flat flat(data, Flat::For::reducing);
                    group_->all_reduce(flat.buffer(site), flat.operation(op));
                    flat.give_back();
                  });
  });
}

Backend::Pending Backend::allreduce_of_sparse(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  const at::Tensor data = tensors[0];
  if (!data.device().is_cpu())
    throw UsageError("all_reduce: sparse tensors must be on the CPU, got one on " +
                     data.device().str());
  if (static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp) != c10d::ReduceOp::SUM)
    throw UsageError("all_reduce: the only operation on sparse tensors is SUM");
  return submit(OpType::ALLREDUCE, "ringsmith:all_reduce of a sparse tensor", tensors,
                [this, data, site = python_site()] {
                  data.copy_(sum_of_sparse(*group_, scratch_of(), data, site));
                });
}

// Makes one all_reduce for all tensors, which are copied one after the other into communication
// memory.
Backend::Pending Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  return with_python_errors([&] {
    constexpr auto kCall = "all_reduce_coalesced";
    if (const auto bits = bit_op_of(options.reduceOp)) {
      for (const at::Tensor& tensor : tensors) {
        check_tensor(kCall, tensor, true);
        check_bits(kCall, tensor);
      }
      return submit(OpType::ALLREDUCE_COALESCED, "ringsmith:all_reduce_coalesced", tensors,
                    [this, all = tensors, bits, site = python_site()] {
                      for (const at::Tensor& tensor : all)
                        all_reduce_bits(*group_, scratch_of(), tensor, *bits, true, site);
                    });
    }
    const comm::ReduceOp op = operation_of(kCall, options.reduceOp);
    for (const at::Tensor& tensor : tensors) {
      check_tensor(kCall, tensor, true);
      check_reducible(kCall, tensor, op);
      check_same_type(kCall, tensor, tensors[0]);
    }
    return submit(OpType::ALLREDUCE_COALESCED, "ringsmith:all_reduce_coalesced", tensors,
                  [this, all = tensors, op, site = python_site()] {
                    if (all.empty()) return;
                    std::vector<Flat> flats;
                    std::size_t bytes = 0, at = 0;
                    for (const at::Tensor& tensor : all) {
                      flats.emplace_back(tensor, Flat::For::reducing);
                      bytes += flats.back().buffer(site).size().value;
                    }
                    std::byte* const memory = scratch(bytes);
                    for (const Flat& flat : flats) {
                      const comm::Buffer part = flat.buffer(site);
                      std::copy_n(part.data(), part.size().value, memory + at);
                      at += part.size().value;
                    }
                    const DType type = flats[0].buffer(site).dtype();
                    group_->all_reduce(
                        comm::Buffer(memory, Elements(bytes / size_of(type)), type, site),
                        flats[0].operation(op));
                    at = 0;
                    for (Flat& flat : flats) {
                      const comm::Buffer part = flat.buffer(site);
                      std::copy_n(memory + at, part.size().value, part.data());
                      at += part.size().value;
                      flat.give_back();
                    }
                  });
  });
}

Backend::Pending Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return with_python_errors([&] {
    const at::Tensor data = only_one("reduce", tensors);
    check_tensor("reduce", data, true);
    check_root("reduce", options.rootRank, getSize());
    const auto root = static_cast<int>(options.rootRank);
    if (const auto bits = bit_op_of(options.reduceOp)) {
      check_bits("reduce", data);
      return submit(OpType::REDUCE, "ringsmith:reduce", tensors,
                    [this, data, bits, root, site = python_site()] {
                      all_reduce_bits(*group_, scratch_of(), data, *bits, getRank() == root, site);
                    });
    }
    const comm::ReduceOp op = operation_of("reduce", options.reduceOp);
    check_reducible("reduce", data, op);
    return submit(OpType::REDUCE, "ringsmith:reduce", tensors,
                  [this, data, op, root, site = python_site()] {
                    Flat flat(data, Flat::For::reducing);
                    group_->reduce(flat.buffer(site), flat.buffer(site), flat.operation(op), root);
                    if (getRank() == root) flat.give_back();
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

Backend::Pending Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return with_python_errors([&] {
    constexpr auto kCall = "reduce_scatter_tensor_coalesced";
    const comm::ReduceOp op = operation_of(kCall, options.reduceOp);
    check_equal_lengths(kCall, outputs, inputs);
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      check_tensor(kCall, inputs[t], false);
      check_tensor(kCall, outputs[t], true);
      check_same_type(kCall, inputs[t], outputs[t]);
      check_world_times(kCall, inputs[t], outputs[t], getSize());
      check_reducible(kCall, outputs[t], op);
    }
    return submit(OpType::COALESCED, "ringsmith:reduce_scatter_tensor_coalesced", outputs,
                  [this, outputs, inputs, op, site = python_site()] {
                    for (std::size_t t = 0; t < inputs.size(); ++t) {
                      Flat part(outputs[t], Flat::For::reducing);
                      const Flat all(inputs[t], Flat::For::reducing);
                      group_->reduce_scatter(all.buffer(site), part.buffer(site),
                                             part.operation(op));
                      part.give_back();
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

Backend::Pending Backend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  return with_python_errors([&] {
    const at::Tensor output = only_one("reduce_scatter", outputs);
    const Tensors parts = only_list("reduce_scatter", inputs, getSize());
    check_tensor("reduce_scatter", output, true);
    check_parts("reduce_scatter", parts, output, false);
    if (const auto bits = bit_op_of(options.reduceOp)) {
      check_bits("reduce_scatter", output);
      return submit(OpType::REDUCE_SCATTER, "ringsmith:reduce_scatter", outputs,
                    [this, parts, output, bits, site = python_site()] {
                      reduce_scatter_bits(*group_, scratch_of(), parts, output, *bits, site);
                    });
    }
    const comm::ReduceOp op = operation_of("reduce_scatter", options.reduceOp);
    check_reducible("reduce_scatter", output, op);
    return submit(
        OpType::REDUCE_SCATTER, "ringsmith:reduce_scatter", outputs,
        [this, parts, output, op, site = python_site()] {
          Flat result(output, Flat::For::reducing);
          const comm::Buffer part = result.buffer(site);
          const std::size_t bytes = part.size().value;
          std::byte* const memory = scratch(bytes * parts.size());
          for (std::size_t r = 0; r < parts.size(); ++r) {
            const Flat one(parts[r], Flat::For::reducing);
            std::copy_n(one.buffer(site).data(), bytes, memory + r * bytes);
          }
          std::byte* const mine = memory + static_cast<std::size_t>(getRank()) * bytes;
          group_->reduce_scatter(
              comm::Buffer(memory, Elements(part.count().value * parts.size()), part.dtype(), site),
              comm::Buffer(mine, part.count(), part.dtype(), site), result.operation(op));
          std::copy_n(mine, bytes, part.data());
          result.give_back();
        });
  });
}

Backend::Pending Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  return with_python_errors([&] {
    constexpr auto kCall = "reduce_scatter_tensor";
    check_tensor(kCall, input, false);
    check_tensor(kCall, output, true);
    check_same_type(kCall, input, output);
    if (const auto bits = bit_op_of(options.reduceOp)) {
      check_bits(kCall, output);
      check_world_times(kCall, input, output, getSize());
      const Tensors parts = input.reshape({getSize(), -1}).unbind();
      return submit(OpType::_REDUCE_SCATTER_BASE, "ringsmith:reduce_scatter_tensor", {output},
                    [this, output, parts, bits, site = python_site()] {
                      reduce_scatter_bits(*group_, scratch_of(), parts, output, *bits, site);
                    });
    }
    const comm::ReduceOp op = operation_of(kCall, options.reduceOp);
    check_reducible(kCall, output, op);
    return submit(OpType::_REDUCE_SCATTER_BASE, "ringsmith:reduce_scatter_tensor", {output},
                  [this, output, input, op, site = python_site()] {
                    Flat part(output, Flat::For::reducing), all(input, Flat::For::reducing);
                    group_->reduce_scatter(all.buffer(site), part.buffer(site), part.operation(op));
                    part.give_back();
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

Backend::Pending Backend::send(Tensors& tensors, int to, int tag) {
  return message(tensors, to, tag, true);
}

Backend::Pending Backend::recv(Tensors& tensors, int from, int tag) {
  return message(tensors, from, tag, false);
}

// Posted to the directions from all other ranks: the first that has a message of the tag takes it.
Backend::Pending Backend::recvAnysource(Tensors& tensors, int tag) {
  return with_python_errors([&]() -> Pending {
    const at::Tensor data = only_one("recv", tensors);
    check_tensor("recv", data, true);
    if (getSize() == 1) throw UsageError("recv from any source: the group has no other rank");
    auto job = c10::make_intrusive<Job>(getRank(), OpType::RECVANYSOURCE, "ringsmith:recv", tensors,
                                        nullptr);
    const auto any = std::make_shared<AnySource>(
        getSize() - 1, std::chrono::steady_clock::now() + options_.timeout);
    const comm::Site site = python_site();
    const std::lock_guard lock(directions_);
    for (int peer = 0; peer < getSize() && !any->taken(); ++peer) {
      if (peer == getRank()) continue;
      const auto done = [job, peer](const std::exception_ptr& e) {
        job->set_source(peer);
        job->end(e);
      };
      incoming_from(peer).post({data, tag, site, done, any});
    }
    return job;
  });
}

Backend::Pending Backend::message(Tensors& tensors, int peer, int tag, bool out) {
  return with_python_errors([&]() -> Pending {
    const char* const call = out ? "send" : "recv";
    const at::Tensor data = only_one(call, tensors);
    check_tensor(call, data, !out);
    if (peer < 0 || peer >= getSize() || peer == getRank())
      throw UsageError(std::string(call) + ": rank " + std::to_string(peer) +
                       " is not another rank of this group of " + std::to_string(getSize()));
    auto job =
        c10::make_intrusive<Job>(getRank(), out ? OpType::SEND : OpType::RECV,
                                 out ? "ringsmith:send" : "ringsmith:recv", tensors, nullptr);
    Message message{data, tag, python_site(), [job](const std::exception_ptr& e) { job->end(e); }};
    const std::lock_guard lock(directions_);
    if (out)
      outgoing_to(peer).post(std::move(message));
    else
      incoming_from(peer).post(std::move(message));
    return job;
  });
}

Outgoing& Backend::outgoing_to(int peer) {
  auto& direction = outgoing_[peer];
  if (!direction)
    direction = std::make_unique<Outgoing>("send to rank " + std::to_string(peer),
                                           [this, peer] { return connect(getRank(), peer); });
  return *direction;
}

Incoming& Backend::incoming_from(int peer) {
  auto& direction = incoming_[peer];
  if (!direction)
    direction = std::make_unique<Incoming>(
        "recv from rank " + std::to_string(peer), [this, peer] { return connect(peer, getRank()); },
        [this, peer] { return meeting(peer, getRank()).has_arrived(0); });
  return *direction;
}

// Where the two ranks of a direction meet: `from` is rank 0 and `to` rank 1.
StoreMeeting Backend::meeting(int from, int to) const {
  const bool sends = getRank() == from;
  const int peer = sends ? to : from;
  const std::string pair = std::to_string(from) + ", " + std::to_string(to);
  const auto lost = [this, peer](int) {
    return ending_ ? std::string("the group was destroyed before the other rank arrived")
                   : group_->loss_of(peer);
  };
  return {
      store_,
      StoreMeeting::Place{"ringsmith/from-" + std::to_string(from) + "-to-" + std::to_string(to),
                          sends ? 0 : 1,
                          2,
                          options_.timeout,
                          "send and recv between ranks " + pair + ", here 0 and 1" +
                              (scope_.empty() ? "" : ", " + scope_),
                          {from, to}},
      lost};
}

std::shared_ptr<Group> Backend::connect(int from, int to) {
  return std::make_shared<Group>(std::make_shared<StoreMeeting>(meeting(from, to)), options_);
}

Backend::Pending Backend::barrier(const c10d::BarrierOptions&) {
  return with_python_errors([&] {
    return submit(OpType::BARRIER, "ringsmith:barrier", {},
                  [this, site = python_site()] { group_->barrier(site); });
  });
}

}  // namespace ringsmith::pytorch
