// The backend's reductions. Bit operations and sparse tensors: gathered.hpp.
#include <algorithm>

#include "labs/torch/backend.hpp"
#include "labs/torch/checks.hpp"
#include "labs/torch/errors.hpp"

namespace ringsmith::pytorch {

using c10d::OpType;

namespace {

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

}  // namespace

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

#if RINGSMITH_TORCH_COALESCES
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

}  // namespace ringsmith::pytorch
